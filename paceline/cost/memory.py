"""The memory that a training step reserves on its device.

On a GPU the allocations and frees of the traced step are replayed through a model of PyTorch's allocator, in the order
in which the step makes them: data, network, optimizer state, a few iterations, and what capturing a graph adds. On a
CPU it is the memory of the process.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import prod

from paceline.cost.allocations import FREED, WORKSPACE, Event
from paceline.cost.caching_allocator import CachingAllocator, MemoryBlock
from paceline.cost.op_tracing import GradientMemory, NetworkShape, PhaseShape
from paceline.cost.operation import Operation
from paceline.cost.update_tracing import UpdateTrace, trace_update
from paceline.cost.workload_tracing import DataShape
from paceline.cost.workspaces import Workspaces
from paceline.step.feeder import SHARE_OF_MEMORY
from paceline.step.graph import WARM_UP, WINDOW_BYTES, window_length
from paceline.step.step import has_own_code
from paceline.workload import Workload

# State tensors of the parameters' size that each optimizer keeps.
OPTIMIZER_TENSORS = {
    "sgd": 0, "momentum": 1, "nesterov": 1, "adagrad": 1, "adadelta": 2, "rmsprop": 1, "adam": 2, "adamw": 2,
    "nadam": 2,
}  # fmt: skip
PROCESS_BYTES = 250 << 20
"""Libraries and workspaces of a process on a CPU."""
CPU_OVERHEAD = 1.15
"""Memory reserved by the allocator of a CPU, relative to memory in use."""
ITERATIONS = 3
"""After these, further iterations reserve nothing more."""
CAPTURED_STEPS = 4
"""Steps of a captured window that are replayed; later ones reuse the memory of these."""
PIECE = 1024
"""Samples that are prepared at a time where all are kept on the device."""
CUBLAS_BYTES = 32 << 20
"""Workspace of cuBLAS for one stream, on Hopper and later GPUs; earlier ones use 8 MiB."""
DEFAULT_STREAM, SIDE_STREAM, CAPTURE_STREAM = range(3)
CAPTURE_POOL = 1


def memory_bytes(
    shape: NetworkShape, workload: Workload, data: DataShape, *, step: str, on_gpu: bool, device_bytes: int = 0,
    workspaces: Workspaces = (),
) -> int:  # fmt: skip
    """On a GPU the most that PyTorch's allocator reserves, without the CUDA context; on a CPU that of the process.

    `device_bytes`: memory of the device, which decides whether the data are kept there; 0 if unknown. `workspaces`: of
    each operation, where known.
    """
    if on_gpu:
        return _reserved(
            shape.phases, shape.operations, data, step, workload.batch, has_own_code(workload),
            device_bytes or sys.maxsize, tuple(workspaces),
        )  # fmt: skip
    return training_bytes(shape.parameter_bytes, shape.activation_bytes, workload, on_gpu)


def training_bytes(parameter_bytes: int, activation_bytes: int, workload: Workload, on_gpu: bool) -> int:
    """A sum with an allowance; on a GPU without libraries."""
    copies = 2 + OPTIMIZER_TENSORS.get(workload.optimizer, 2)  # an optimizer of the user's own counts as Adam
    copies += 2 if workload.accumulate > 1 else 0  # the sum of the gradients so far, and the next sum
    return int(CPU_OVERHEAD * (parameter_bytes * copies + activation_bytes)) + (0 if on_gpu else PROCESS_BYTES)


@functools.lru_cache(maxsize=512)
def _reserved(
    phases: tuple[PhaseShape, ...], operations: tuple[Operation, ...], data: DataShape, step: str, batch: int,
    own_code: bool, device_bytes: int, workspaces: Workspaces,
) -> int:  # fmt: skip
    updates = [trace_update(phase.parameter_shapes, phase.rule, step, True) for phase in phases]
    run = _StepReplay(phases, updates, operations, data, batch, device_bytes, workspaces)
    run.place_network_and_data()
    if own_code:
        for phase in phases:
            run.free(run.gradient(phase.memory).values())  # the trial of a user's own network
    if step == "plain":
        run.plain()
    else:
        run.make_flat()
        if step == "graph":
            run.graph()
        else:
            run.flat(ITERATIONS)
    return run.allocator.peak_bytes


Live = dict[int, MemoryBlock]


@dataclass
class _StepReplay:
    phases: Sequence[PhaseShape]
    updates: Sequence[UpdateTrace]
    """Of each phase."""
    operations: tuple[Operation, ...]
    data: DataShape
    batch: int
    device_bytes: int
    workspaces: Workspaces
    allocator: CachingAllocator = field(default_factory=CachingAllocator)
    stream: int = DEFAULT_STREAM
    pool: int = 0
    _parameters: list[list[MemoryBlock]] = field(default_factory=list)
    """Of each phase."""
    _streams: set[int] = field(default_factory=set)
    _tried: set[int] = field(default_factory=set)
    """Operations that ran before, so that the library has chosen their algorithm."""

    @property
    def memory(self) -> GradientMemory:
        """Its sizes of batch and buffers are those of every phase."""
        return self.phases[0].memory

    @property
    def parameter_sizes(self) -> list[list[int]]:
        """Of each phase."""
        return [[4 * prod(shape) for shape in phase.parameter_shapes] for phase in self.phases]

    def place_network_and_data(self) -> None:
        self._parameters = [self.allocate(sizes) for sizes in self.parameter_sizes]
        self.allocate(self.memory.buffer_bytes)
        prepared, room = self._data_bytes, SHARE_OF_MEMORY * self.device_bytes
        if self.resident and sum(prepared) <= room / 2:
            self.allocate(prepared)
            if self.data.kind != "text":  # bytes become floating point numbers on the device
                size = self.memory.batch_bytes[0] * min(self.data.samples, PIECE) // self.batch
                self.free(self.allocate((size // 4, size, size)))
        elif self.resident:
            self.allocate(size // 4 for size in prepared)

    @property
    def _data_bytes(self) -> list[int]:
        """Sizes of all inputs and of all targets, ready for the network."""
        samples = max(self.data.samples, self.batch)
        return [size * samples // self.batch for size in self.memory.batch_bytes]

    @property
    def resident(self) -> bool:
        """Whether the feeder keeps the data on the device: as they are, or ready for the network if that fits too."""
        return self.data.in_memory and sum(self._data_bytes) // 4 <= SHARE_OF_MEMORY * self.device_bytes

    def make_flat(self) -> None:
        """Parameters and gradient of a phase in one buffer each; the network's own memory is free again."""
        for sizes, parameters, update in zip(self.parameter_sizes, self._parameters, self.updates, strict=True):
            self.allocate((sum(sizes), sum(sizes)))
            self.free(parameters)
            self.allocate(update.state_bytes)

    def plain(self) -> None:
        """The gradients of an iteration are in use until the next one has its own."""
        before: list[MemoryBlock] = []
        for number in range(ITERATIONS):
            in_use = self.allocate(self.memory.batch_bytes)
            for phase, update in zip(self.phases, self.updates, strict=True):
                in_use += self.gradient(phase.memory).values()
                self.replay(update.events if number else update.first_events)
            self.free(before)
            before = in_use
        self.free(before)

    def flat(self, iterations: int, scale: float = 1.0) -> None:
        before: list[MemoryBlock] = []
        for _ in range(iterations):
            batch = self.allocate(self.memory.batch_bytes)
            kept = self.flat_step(scale)
            self.free(before)
            before = [*kept, *batch]
        self.free(before)

    def flat_step(self, scale: float = 1.0) -> list[MemoryBlock]:
        """One gradient and one update of each phase; returns the losses and the outputs."""
        kept: list[MemoryBlock] = []
        for phase, update in zip(self.phases, self.updates, strict=True):
            live, gradients = self.gradient(phase.memory, scale), set(phase.memory.gradients)
            self.replay(update.events)
            self.free(block for number, block in live.items() if number in gradients)
            kept += (block for number, block in live.items() if number not in gradients)
        return kept

    def graph(self) -> None:
        """Warm-up on a stream of its own, then a window of several steps and one of a single step are captured."""
        memory = self.memory
        snapshot = self.allocate([*chain.from_iterable(self.parameter_sizes), *memory.buffer_bytes])
        for sizes, update in zip(self.parameter_sizes, self.updates, strict=True):
            snapshot += self.allocate([sum(sizes), *update.state_bytes])
        example = self.allocate(memory.batch_bytes)
        outcome: list[MemoryBlock] = []
        self.stream = SIDE_STREAM
        for _ in range(WARM_UP):
            before, outcome = outcome, self.flat_step()
            self.free(before)
        self.stream = DEFAULT_STREAM
        kept_bytes = [size for number, size in memory.events if number in memory.kept and size >= 0]
        step_bytes = (*memory.batch_bytes, *kept_bytes)
        steps = self.data.samples // self.batch
        length = window_length(steps, WINDOW_BYTES, sum(step_bytes)) if self.resident and steps else 1
        for steps_captured in sorted({length, 1}, reverse=True):
            self.allocate(size * steps_captured for size in step_bytes)
            self.allocator.empty_cache()
            self.stream, self.pool = CAPTURE_STREAM, CAPTURE_POOL
            for _ in range(min(CAPTURED_STEPS, steps_captured)):
                self.free(self.flat_step())
            self.stream, self.pool = DEFAULT_STREAM, 0
        self.free((*snapshot, *example, *outcome))
        self.free(self.allocate(size * length for size in memory.batch_bytes))
        if self.data.samples > self.batch and (rest := self.data.samples % self.batch):
            self.flat(1, rest / self.batch)  # a smaller last batch is not captured

    def gradient(self, memory: GradientMemory, scale: float = 1.0) -> Live:
        if self.stream not in self._streams:
            self._streams.add(self.stream)
            if any(operation.family in ("matmul", "recurrent") for operation in self.operations):
                self.allocate((CUBLAS_BYTES,))
        return self.replay(memory.events, scale)

    def replay(self, events: Iterable[Event], scale: float = 1.0) -> Live:
        """The blocks that are in use afterwards, by number."""
        live: Live = {}
        for number, size in events:
            if size == WORKSPACE:
                self._use_workspace(number, scale)
            elif size == FREED:
                self.allocator.free(live.pop(number))
            else:
                live[number] = self.allocator.allocate(int(size * scale), self.stream, self.pool)
        return live

    def _use_workspace(self, operation: int, scale: float) -> None:
        """In the first call the library tries algorithms; PyTorch then gives back all memory that is not in use."""
        if operation >= len(self.workspaces):
            return
        first_bytes, later_bytes = self.workspaces[operation]
        if operation not in self._tried and first_bytes:
            self._tried.add(operation)
            self.free(self.allocate((int(first_bytes * scale),)))
            self.allocator.empty_cache()
        if later_bytes:
            self.free(self.allocate((int(later_bytes * scale),)))

    def allocate(self, sizes: Iterable[int]) -> list[MemoryBlock]:
        return [self.allocator.allocate(size, self.stream, self.pool) for size in sizes]

    def free(self, blocks: Iterable[MemoryBlock]) -> None:
        for block in list(blocks):
            self.allocator.free(block)
