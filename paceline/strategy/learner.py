"""What a worker computes: fetched parameters and some batches become a payload. No process, no clock.

Both drivers use it, so what one of them did can be repeated by the other, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from paceline.errors import StrategyError
from paceline.step.flat_parameters import FlatParameters
from paceline.step.optimizers import State, fused_update, has_fused_kernel, initial_state, update
from paceline.step.phase import Batch
from paceline.step.step import Parts, reported
from paceline.step.tally import Tally
from paceline.strategy.batch_source import BatchSource
from paceline.strategy.instructions import Compute
from paceline.strategy.layout import Layout
from paceline.strategy.phase_gradient import PhaseGradient
from paceline.strategy.strategy import Strategy

Fetch = Callable[[int | None], tuple[int, Tensor]]
"""From the version wanted, None for the newest, to the version there is and its parameters."""


@dataclass(frozen=True)
class Result:
    """What is known of a payload besides its numbers."""

    samples: int
    steps: int
    pulled: int
    """The version of the last fetch; staleness counts from it."""


@dataclass(frozen=True, eq=False)
class LearnerState:
    """What a worker keeps between two tasks. Tensors in it are not to be changed."""

    pulled: int = 0
    parameters: Tensor | None = None
    """None where the next task begins with a fetch; the fetched tensor itself while nothing has changed it."""
    optimizer: tuple[State, ...] = ()
    counters: tuple[Tensor, ...] = field(default=(), repr=False)
    """Buffers of whole numbers, which are not exchanged."""


class Learner:
    """A task is `begin`, then for each of its batches `fetch` where it says so and `step`, then `finish`."""

    def __init__(
        self, parts: Parts, strategy: Strategy, workers: int, *, fetches_stay: bool = False, local: Tensor | None = None
    ) -> None:
        """With `fetches_stay` nobody overwrites a tensor that was fetched, so it need not be copied to be kept.

        `local` is memory for the network's parameters and buffers; without it there is some of its own.
        """
        obstacle = _obstacle(parts)
        if obstacle:
            raise StrategyError(f"{parts.workload.network} cannot be distributed: {obstacle}")
        self.parts, self.strategy, self.workers, self.fetches_stay = parts, strategy, workers, fetches_stay
        self.source = BatchSource(parts, strategy.own_pass)
        kind = parts.phases[0].parameters[0].dtype
        floats = [b for b in parts.network.buffers() if b.dtype == kind]
        self.counters = [b for b in parts.network.buffers() if b.dtype != kind]
        self.layout = Layout.of(parts, sum(b.numel() for b in floats))
        self.size, self.parameters = self.layout.size, self.layout.parameters
        self.local = torch.zeros(self.size, dtype=kind, device=parts.device) if local is None else local
        self.gradient = torch.zeros_like(self.local)
        self.phases = self._phases(self.gradient)
        self._keep_buffers(floats)
        self.optimizer: list[State] = []
        if strategy.exchange != "gradient":
            self.optimizer = [initial_state(p.phase.rule, p.flat.buffer) for p in self.phases]
        exact = torch.float64 if kind == torch.float64 else torch.float32
        self.rates = [torch.zeros((), dtype=exact, device=parts.device) for _ in self.phases]
        self.base = torch.zeros_like(self.local) if strategy.exchange == "parameters" else self.local
        """What was fetched last, where the payload is the difference from it."""
        self._fresh = tuple({name: t.clone() for name, t in state.items()} for state in self.optimizer)
        self._bound: dict[int, list[PhaseGradient]] = {}
        self._spare = torch.zeros_like(self.local)
        self._source: Tensor | None = None
        """A tensor that stays as it is and that `local` is equal to, if there is one."""
        self._pulled = 0

    def initial(self) -> Tensor:
        """The flat vector before anything was learnt: the same for every worker."""
        return self.local.clone()

    def bind(self, out: Tensor) -> None:
        """Lets gradients be computed straight into a payload that is used again and again."""
        if out.device == self.local.device and self.strategy.exchange == "gradient":
            self._bound[out.data_ptr()] = self._phases(out)

    def bound(self, out: Tensor) -> list[PhaseGradient]:
        """How the phases' gradients get into a payload."""
        return self._bound.get(out.data_ptr(), self.phases)

    # A whole task, and its pieces

    def run(self, task: Compute, fetch: Fetch, out: Tensor, tally: Tally) -> Result:
        """The whole task: its payload goes to `out`, losses and accuracy to `tally`."""
        self.begin(task, out)
        fetches = set(task.fetches)
        for position in range(len(task.batches)):
            if position in fetches:
                self.fetch(*fetch(task.version))
            self.step(tally)
        return self.finish(fetch(task.version) if self.strategy.exchange == "elastic" else None)

    def begin(self, task: Compute, out: Tensor) -> None:
        self.task, self.out, self.position, self.samples = task, out, 0, 0
        self._total = out if out.device == self.local.device else self._spare
        self._empty, self._unpushed = True, False
        self.source.expect(task.epoch, task.batches)

    def fetch(self, version: int, flat: Tensor) -> None:
        """Takes over the parameters before the next step."""
        self._add_difference()
        if flat is not self._source and flat is not self.local:
            self.local.copy_(flat)
        if self.base is not self.local:
            self.base.copy_(flat)
        self._source, self._pulled = flat if self.fetches_stay else None, version

    def step(self, tally: Tally) -> None:
        """The next batch of the task."""
        task, position = self.task, self.position
        number = task.batches[position]
        batch = self.source.batch(task.epoch, number)
        phases = self._bound.get(self._total.data_ptr(), self.phases) if self._empty else self.phases
        if all(phase.written_out(batch) for phase in phases):
            with torch.inference_mode():  # nothing is differentiated here, so autograd's part can be left out
                self._step(phases, batch, number, tally)
        else:
            self._step(phases, batch, number, tally)
        self.samples += len(batch[1])
        self.position += 1

    def finish(self, centre: tuple[int, Tensor] | None = None) -> Result:
        """The payload is complete; `centre`, a version and its parameters, is what elastic averaging is drawn to."""
        with torch.no_grad():
            self._add_difference()
            n = self.parameters
            if self.strategy.exchange == "elastic":
                assert centre is not None, "elastic averaging ends a task with a look at the centre"
                self._pulled, middle = centre
                share = self.strategy.alpha / self.workers
                torch.sub(middle[:n].to(self.local.device), self.local[:n], out=self._total[:n]).mul_(share)
                self.local[:n].add_(self._total[:n])
                self._source = None
            if self.size > n:
                self._total[n:].copy_(self.local[n:])
            if self._total is not self.out:
                self.out.copy_(self._total)
        return Result(self.samples, self.position, self._pulled)

    def _step(self, phases: list[PhaseGradient], batch: Batch, number: int, tally: Tally) -> None:
        epoch = self.task.epoch
        worker, place = self.source.position(number)
        self.parts.seed(epoch, place, worker)
        outcomes = []
        gradients = self.strategy.exchange == "gradient"
        for index, phase in enumerate(phases):
            outcomes.append(phase.compute(batch, self.parts.generator))
            if not gradients:
                self._update(index, phase, epoch, place)
        if gradients:
            self._add_gradient(phases is not self.phases, epoch, place)
        self._unpushed = True
        if self.layout.buffers or not gradients:
            self._source = None
        outcome = reported(outcomes)
        tally.add(outcome.loss, outcome.output, batch[1])

    @torch.no_grad()
    def _update(self, index: int, phase: PhaseGradient, epoch: int, place: int) -> None:
        """The workload's own rule, on this worker."""
        rule, flat = phase.phase.rule, phase.flat
        rate, state = self.rates[index], self.optimizer[index]
        rate.fill_(self.layout.rate(rule, epoch, place))
        if has_fused_kernel(rule, flat.buffer):
            fused_update(rule, [flat.buffer], [flat.gradient], [*state.values()], rate)
        else:
            update(rule, flat.buffer, flat.gradient, state, rate)

    @torch.no_grad()
    def _add_gradient(self, is_there: bool, epoch: int, place: int) -> None:
        n = self.parameters
        gradient = self._total if is_there else self.gradient
        if self.strategy.local_step and not self._fetches_next():
            first = 0
            for phase in self.layout.phases:
                piece = slice(first, first + phase.size)
                self.local[piece].sub_(gradient[piece], alpha=self.layout.rate(phase.rule, epoch, place))
                first += phase.size
            self._source = None
        if self._empty and not is_there:
            self._total[:n].copy_(gradient[:n])
        elif not self._empty:
            self._total[:n].add_(gradient[:n])
        self._empty = False

    def _fetches_next(self) -> bool:
        """Whether the next step begins with a fetch, so that a local step would be for nothing."""
        following = self.position + 1
        return self.strategy.fetch_every == 1 or following in self.task.fetches

    @torch.no_grad()
    def _add_difference(self) -> None:
        """What the local steps since the last fetch have changed goes to the payload."""
        if self.strategy.exchange != "parameters" or not self._unpushed:
            return
        n = self.parameters
        if self._empty:
            torch.sub(self.base[:n], self.local[:n], out=self._total[:n])
        else:
            self._total[:n].add_(self.base[:n]).sub_(self.local[:n])
        self._empty, self._unpushed = False, False

    # One learner for many workers

    @property
    def keeps_parameters(self) -> bool:
        """Whether a worker's own parameters matter beyond its task; else every task begins with a fetch."""
        s = self.strategy
        return s.exchange == "elastic" or (s.exchange == "gradient" and s.fetch_every != 1)

    def state(self) -> LearnerState:
        parameters = None
        if self.keeps_parameters:
            parameters = self.local.clone() if self._source is None else self._source
        optimizer = tuple({name: t.clone() for name, t in state.items()} for state in self.optimizer)
        return LearnerState(self._pulled, parameters, optimizer, tuple(c.clone() for c in self.counters))

    def fresh(self) -> LearnerState:
        """The state of a worker that has just begun."""
        return LearnerState(0, None, self._fresh, tuple(torch.zeros_like(c) for c in self.counters))

    def load_state(self, state: LearnerState) -> None:
        self._pulled = state.pulled
        if state.parameters is not None and state.parameters is not self._source:
            self.local.copy_(state.parameters)
            self._source = state.parameters
        for mine, kept in zip(self.optimizer, state.optimizer, strict=True):
            for name, tensor in mine.items():
                tensor.copy_(kept[name])
        for counter, value in zip(self.counters, state.counters, strict=True):
            counter.copy_(value)

    @torch.no_grad()
    def show(self, flat: Tensor) -> None:
        """Puts a flat vector into the network, to look at it or to test it."""
        self.local.copy_(flat)
        self._source = None

    def close(self) -> None:
        self.source.close()

    # How the network becomes flat

    def _phases(self, gradient: Tensor) -> list[PhaseGradient]:
        made, first = [], 0
        for phase, layout in zip(self.parts.phases, self.layout.phases, strict=True):
            piece = slice(first, first + layout.size)
            order = self.parts.feeder.order
            made.append(PhaseGradient(phase, self.local[piece], gradient[piece], order.batch, self.parts.dataset))
            first += layout.size
        return made

    @torch.no_grad()
    def _keep_buffers(self, buffers: list[Tensor]) -> None:
        """Makes the network's buffers pieces of the flat vector, after the parameters."""
        first = self.parameters
        for buffer in buffers:
            piece = self.local[first : first + buffer.numel()].view(buffer.shape)
            piece.copy_(buffer)
            buffer.data = piece
            first += buffer.numel()


def _obstacle(parts: Parts) -> str | None:
    """Why a network's phases cannot share one flat vector."""
    everything: list[nn.Parameter] = [p for phase in parts.phases for p in phase.parameters]
    if len({id(p) for p in everything}) < len(everything):
        return "two phases share a parameter"
    return FlatParameters.possible(everything)
