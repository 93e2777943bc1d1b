"""The layer clock for a custom training loop, in two lines.

with paceline.LayerClock(model) as clock:
    for x, y in clock.batches(loader):
        ...                     # forward, loss.backward(), optimizer.step(), as always
print(clock.measurement())
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from time import perf_counter
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from paceline import busy_machine
from paceline.errors import InputError
from paceline.measurement.communication import ddp_overlap_s
from paceline.measurement.gpu_session import SAMPLED_SHARE, GpuSession
from paceline.measurement.iteration_ends import IterationEnds
from paceline.measurement.loop_marks import mark_loop
from paceline.measurement.mark_cost import mark_cost_s
from paceline.measurement.mark_log import LOOP, MarkLog
from paceline.measurement.measurement import Measurement
from paceline.measurement.memory import peak_memory_bytes
from paceline.measurement.module_marks import check_supported
from paceline.measurement.rates import device_rates
from paceline.measurement.session import SAMPLE_EVERY, WARM_UP, Session
from paceline.measurement.summary import summarise
from paceline.measurement.validation_calls import ValidationCalls
from paceline.step.placement import device_name

T = TypeVar("T")
END = object()


class LayerClock:
    """Measures every layer's forward and backward time in a sample of a loop's iterations.

    An iteration ends with an update: by default the step of any optimizer that holds parameters of the model, with
    `optimizer` that of one optimizer or of several. Where the loop takes its batches from `batches`, everything up to
    the next batch belongs to the iteration. `every` limits how densely iterations are sampled. With `live`, a table in
    the terminal shows the result so far.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
        *,
        every: int | None = None,
        warm_up: int = WARM_UP,
        live: bool = False,
    ) -> None:
        began_s = perf_counter()
        if (every is not None and every < 2) or warm_up < 0:
            raise InputError(f"every={every} should be at least 2 and warm_up={warm_up} at least 0")
        if not isinstance(model, nn.Module):
            raise InputError(
                f"model={model!r:.60} should be an nn.Module; paceline.measure takes the name of a network"
            )
        check_supported()
        self.model = model
        self.optimizers = _optimizers(optimizer)
        self.device = _device_of(model)
        self.session = self._session(every, warm_up)
        self.session.extra_marks += [self._check_device, mark_loop]
        self._ends = IterationEnds(self.session, model, self.optimizers)
        self._busy = busy_machine.busy_now()
        self._live = live
        self._batch = 0
        """Samples in the first batch."""
        self._batches = 0
        """Batches handed out in this iteration, and how many iterations had how many."""
        self._batches_per_iteration: Counter[int] = Counter()
        self._epoch_starts_s: list[float] = []
        self._installed = ExitStack()
        self._closed = False
        self.session.overhead.prelude_s += perf_counter() - began_s

    def _session(self, every: int | None, warm_up: int) -> Session:
        if self.device.type == "cpu":
            return Session(self.model, mark_cost_s(), every or SAMPLE_EVERY, warm_up)
        if self.device.type != "cuda":
            raise InputError(f"the layer clock supports CPU and CUDA devices; the model is on {self.device}")
        return GpuSession(self.model, self.device, every=every or SAMPLED_SHARE)

    def __enter__(self) -> LayerClock:
        self._installed.enter_context(self._ends.watching())
        self._installed.enter_context(ValidationCalls(self.model, self.session).watching())
        if self._live:
            from paceline.measurement.live_table import LiveTable

            self._installed.enter_context(LiveTable(self.session, type(self.model).__name__))
        self.session.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._installed.close()
        self.session.close()
        self._closed = True

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Yields the loader's batches; the time spent waiting for them counts as loading.

        Starting the loader and its first batch belong to no iteration.
        """
        self.session.close()
        began_s = perf_counter()
        source = iter(loader)
        batch: Any = next(source, END)
        self._epoch_starts_s.append(perf_counter() - began_s)
        self.session.begin()
        self._ends.in_batches = True
        try:
            while batch is not END:
                self.note_batch(batch)
                yield batch
                self._end_of_batch()
                self.session.mark(("load", ""))
                batch = next(source, END)
                self.session.mark(LOOP)
        except GeneratorExit:  # the loop was left by `break`
            if self.session.timing:
                self._end_of_batch()
            raise
        finally:
            self._ends.in_batches = False
            self.session.close()  # time between two epochs belongs to no iteration

    def note_batch(self, batch: Any) -> None:
        """Counts a batch of the current iteration, for loops that do not take theirs from `batches`."""
        self._batches += 1
        self._batch = self._batch or _length(batch)

    def pause(self) -> None:
        """What follows, until `resume`, belongs to no iteration."""
        self.session.close()

    def resume(self) -> None:
        if not self._closed:
            self.session.begin()

    def _end_of_batch(self) -> None:
        if self._ends.at_batch():
            self._count_batches()

    def step(self) -> None:
        """Marks the end of an iteration. Without an update since the last one, as in gradient accumulation, the
        iteration continues."""
        if self._closed:
            raise InputError("clock.step() was called outside the clock's `with` block")
        if self._ends.at_step():
            self._count_batches()

    def _count_batches(self) -> None:
        self._batches_per_iteration[self._batches] += 1
        self._batches = 0

    @property
    def batch(self) -> int:
        """Samples per iteration: those of a batch, times the batches of most iterations."""
        batches = self._batches_per_iteration.most_common(1)
        return self._batch * (batches[0][0] if batches else 1)

    def _check_device(self, log: MarkLog) -> ExitStack:
        if _device_of(self.model) != self.device:  # here, because this is between two iterations
            raise InputError(
                f"the model was moved from {self.device} to {_device_of(self.model)} while it was measured: "
                "move it before the clock starts"
            )
        return ExitStack()

    def measurement(self, name: str = "", *, batch: int | None = None) -> Measurement:
        """The measurement so far; the `with` block may still be open. `batch` is the number of samples per iteration,
        where the clock cannot know it."""
        if self.session.number == 0:
            raise InputError(
                "nothing was measured: no optimizer of the model made a step; take batches from clock.batches(loader), "
                "or call clock.step() at the end of every iteration"
            )
        self.session.finish()
        if self.session.samples and not self.session.backwards:
            raise InputError(
                "no backward pass was seen: call loss.backward() (or torch.autograd.grad) inside the block"
            )
        began_s = perf_counter()
        rates = device_rates(self.device)
        self.session.overhead.prelude_s += perf_counter() - began_s
        self.session.hidden_s = ddp_overlap_s(self.model, self.session.hidden_s)
        conditions = {"threads": str(torch.get_num_threads()), "torch": torch.__version__}
        if self._busy:
            conditions["busy"] = self._busy
        return summarise(
            self.session,
            rates,
            name=name or type(self.model).__name__,
            batch=self.batch if batch is None else batch,
            device=str(self.device),
            device_name=device_name(self.device),
            step="plain",
            peak_memory_bytes=peak_memory_bytes(self.device),
            conditions=conditions,
            epoch_starts_s=self._epoch_starts_s,
        )


def _optimizers(given: Any) -> tuple[torch.optim.Optimizer, ...]:
    found = () if given is None else (given,) if isinstance(given, torch.optim.Optimizer) else tuple(given)
    for optimizer in found:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(f"optimizer: {type(optimizer).__name__} is not a torch.optim.Optimizer")
    return found


def _device_of(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _length(batch: Any) -> int:
    """The number of samples: the first dimension of the first tensor or array in a batch."""
    leaves = tree_leaves(dict(batch) if isinstance(batch, Mapping) else batch)
    shapes = (leaf.shape for leaf in leaves if hasattr(leaf, "shape"))
    return next((int(shape[0]) for shape in shapes if len(shape)), 0)
