"""What a worker computes: fetched parameters and some batches become a payload. No process, no clock.

Every driver and the replay use it, so what one of them did can be repeated by another, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from paceline.step.clipping import clip_norm_
from paceline.step.optimizers import State
from paceline.step.step import Parts, reported
from paceline.step.tally import Tally
from paceline.strategy.batch_source import BatchSource
from paceline.strategy.exchange import Replica
from paceline.strategy.gradient_buckets import BucketFilling, StartBucket, bounds_for
from paceline.strategy.instructions import Compute
from paceline.strategy.layout import Layout, check_distributable
from paceline.strategy.learner_state import LearnerState, Result
from paceline.strategy.payload_encoder import PayloadEncoder
from paceline.strategy.phase_gradient import GradientTarget, PhaseGradient
from paceline.strategy.server_optimizer import ServerOptimizer, optimizer_of
from paceline.strategy.strategy import Strategy
from paceline.strategy.turns import Turns

Fetch = Callable[[int], tuple[int, Tensor]]
"""From a position in the task to the version that is fetched there and its parameters."""


class Learner:
    def __init__(
        self, parts: Parts, strategy: Strategy, workers: int, *, fetches_stay: bool = False, local: Tensor | None = None
    ) -> None:
        """With `fetches_stay` nobody overwrites a tensor that was fetched, so it need not be copied to be kept.

        `local` is where the worker's parameters are to be; None: in memory of its own.
        """
        check_distributable(parts)
        self.parts, self.strategy, self.workers, self.fetches_stay = parts, strategy, workers, fetches_stay
        self.exchange = exchange = strategy.make_exchange
        self.source = BatchSource(parts, strategy.full_pass_per_worker)
        dtype = parts.phases[0].parameters[0].dtype
        floats = [b for b in parts.network.buffers() if b.dtype == dtype]
        self.counters = [b for b in parts.network.buffers() if b.dtype != dtype]
        self.layout = Layout.of(parts, sum(b.numel() for b in floats))
        self.turns = Turns.of(strategy, self.layout, workers)
        self.size, self.parameters = self.layout.size, self.layout.parameters
        self.local = torch.zeros(self.size, dtype=dtype, device=parts.device) if local is None else local
        self.gradient = torch.zeros_like(self.local)
        self.phases = self._phases()
        self.buckets = bounds_for(strategy, self.phases)
        """In which a group can exchange gradients; empty: only complete payloads."""
        self._keep_buffers(floats)
        self.optimizers: list[ServerOptimizer] = []
        if exchange.local_optimizer:
            self.optimizers = [optimizer_of(phase.rule, phase, dtype) for phase in self.layout.phases]
        self.optimizer_state: list[State] = [
            {name: t.to(parts.device) for name, t in each.initial_state().items()} for each in self.optimizers
        ]
        self._fresh = self._cloned_optimizer_state()
        own = self.local[: self.parameters]
        self._total = torch.zeros_like(own) if not exchange.local_optimizer else own
        """The sum of gradients since the last push; the payload itself where it can be."""
        self.replica = Replica(own, self._total, torch.zeros_like(own) if exchange.keeps_fetched else own, workers)
        self.replica.state.update({name: torch.zeros_like(own) for name in exchange.state})
        self.encoder = PayloadEncoder(exchange, strategy, self.replica, self.local)
        self.fragments = self.encoder.fragments
        self._bound: dict[int, list[GradientTarget]] = {}
        """Payloads that gradients are computed straight into, by their memory."""
        self._source: Tensor | None = None
        """A tensor that stays as it is and that `local` is equal to, if there is one."""
        self._pulled = 0
        single = exchange.sums_gradients and strategy.one_batch_per_task and len(self.phases) == 1
        self._single = single and not self.layout.buffers
        """Whether a task is one fetch, one batch and one gradient, straight into the payload."""

    def initial(self) -> Tensor:
        """The flat vector before anything was learned: the same for every worker."""
        return self.local.clone()

    @property
    def payload_size(self) -> int:
        """Numbers of a payload: the encoded part, then the buffers."""
        return self.encoder.size + self.layout.buffers

    def bind(self, out: Tensor) -> None:
        """Lets gradients be computed straight into a payload that is used again and again."""
        if out.device == self.local.device and self.exchange.sums_gradients:
            ends = self.layout.phase_ends()
            targets = [phase.target(out[slice(*end)]) for phase, end in zip(self.phases, ends, strict=True)]
            self._bound[out.data_ptr()] = targets

    # A task

    def run(
        self, task: Compute, fetch: Fetch, out: Tensor, tally: Tally, after_step: Callable[[], None] | None = None,
        start_bucket: StartBucket | None = None,
    ) -> Result:  # fmt: skip
        """The worker loop: the task's payload goes to `out`, losses and accuracy to `tally`.

        `after_step` is called between two steps: to show that the worker is alive, or for faults on purpose.
        `start_bucket`, where there are `buckets`, is called for each, if gradients are computed straight into `out`.
        """
        if self._single:
            result = self._run_single(task, fetch, out, tally)
            if result is not None:
                return result
        self.source.expect(task.epoch, map(self.turns.batch, task.batches))
        total = self._total
        if self.exchange.sums_gradients and out.device == self.local.device:
            total = out[: self.parameters]
        empty, samples = True, 0
        for position, number in enumerate(task.batches):
            if position in task.fetches:
                self._take_over(*fetch(position), task)
            samples += self._step(task, position, number, total, empty, tally, start_bucket)
            empty = False
            if after_step is not None:
                after_step()
        with torch.no_grad():
            if self.exchange.fetch_last:
                self._pulled, centre = fetch(len(task.batches))
                self.replica.fetched.copy_(centre[: self.parameters])
                self._source = None
            self.encoder.encode(task, total, out)
        return Result(samples, len(task.batches), self._pulled)

    def _run_single(self, task: Compute, fetch: Fetch, out: Tensor, tally: Tally) -> Result | None:
        """The most frequent task with as little around the arithmetic as possible; None: it is not one of these."""
        phase, bound = self.phases[0], self._bound.get(out.data_ptr())
        if phase.chain is None or bound is None:
            return None
        number = task.batches[0]
        batch = self.source.batch(task.epoch, number)
        samples = batch[1].shape[0]
        if samples != phase.chain.batch:
            return None
        self._take_over(*fetch(0), task)
        if self.parts.random:
            worker, place = self.source.position(number)
            self.parts.seed(task.epoch, place, worker)
        phase.aim(bound[0])
        outcome = phase.compute(batch, self.parts.generator)
        tally.add(outcome.loss, outcome.output, batch[1])
        return Result(samples, 1, self._pulled)

    def _take_over(self, version: int, flat: Tensor, task: Compute) -> None:
        """The fetched parameters replace the worker's, or a fragment of them is mixed into its own."""
        if self.fragments is not None and not task.whole:
            with torch.no_grad():
                self.fragments.take_over(task.fragment, flat, self.local, self.replica.fetched)
            self._source, self._pulled = None, version
            return
        if flat is not self._source and flat is not self.local:
            with torch.no_grad():
                self.local.copy_(flat)
        if self.exchange.keeps_fetched:
            with torch.no_grad():
                self.replica.fetched.copy_(self.local[: self.parameters])
        self._source, self._pulled = flat if self.fetches_stay else None, version

    def _step(
        self, task: Compute, position: int, number: int, total: Tensor, empty: bool, tally: Tally,
        start_bucket: StartBucket | None,
    ) -> int:  # fmt: skip
        """One batch; its gradient is added to `total`, or used by the worker's own optimizer. The samples."""
        turn, number = divmod(number, self.turns.batches)
        batch = self.source.batch(task.epoch, number)
        bound = self._bound.get(total.data_ptr()) if empty and not self.exchange.local_optimizer else None
        worker, place = self.source.position(number)
        self.parts.seed(task.epoch, place, worker, turn)
        outcomes = []
        active = [(index, phase) for index, phase in enumerate(self.phases) if phase.phase.rule.trains_in(task.epoch)]
        if self.turns.count > 1:
            active = active[turn : turn + 1]
        if len(active) < len(self.phases):  # parameters that are not trained now have a gradient of zero
            (self.gradient if bound is None else total)[: self.parameters].zero_()
        for index, phase in active:
            phase.aim(phase.own if bound is None else bound[index])
            filling = None
            if start_bucket is not None and bound is not None and self.buckets:
                filling = BucketFilling(bound[index].parts, self.buckets, partial(start_bucket, len(batch[1])))
            outcomes.append(phase.compute(batch, self.parts.generator, filling))
            if self.exchange.local_optimizer:
                self._update(index, phase, task.epoch, place)
        if not self.exchange.local_optimizer:
            self._add(task, position, total, bound is not None, empty, place)
        if not turn:  # a batch counts once
            outcome = reported(outcomes)
            tally.add(outcome.loss, outcome.output, batch[1])
        if self.layout.buffers or self.exchange.local_optimizer:
            self._source = None
        return len(batch[1])

    def _update(self, index: int, phase: PhaseGradient, epoch: int, place: int) -> None:
        """The workload's own optimizer, on this worker's copy."""
        optimizer, state, flat = self.optimizers[index], self.optimizer_state[index], phase.flat
        with torch.no_grad():
            if optimizer.rule.clip_norm:
                clip_norm_([flat.gradient], optimizer.rule.clip_norm)
            rate = self.layout.rate(optimizer.rule, epoch, place)
            optimizer.update(flat.buffer, flat.gradient, flat.buffer, state, state, rate, room=flat.gradient)

    def _add(self, task: Compute, position: int, total: Tensor, is_there: bool, empty: bool, place: int) -> None:
        with torch.no_grad():
            gradient = total if is_there else self.gradient[: self.parameters]
            if self.strategy.local_step and not self._fetches_next(task, position):
                for phase, (first, last) in zip(self.layout.phases, self.layout.phase_ends(), strict=True):
                    if phase.rule.trains_in(task.epoch):
                        rate = self.layout.rate(phase.rule, task.epoch, place)
                        self.local[first:last].sub_(gradient[first:last], alpha=rate)
                self._source = None
            if not empty:
                total.add_(gradient)
            elif not is_there:
                total.copy_(gradient)

    def _fetches_next(self, task: Compute, position: int) -> bool:
        """Whether the next step begins with a fetch, so that a local step would be for nothing."""
        return self.strategy.fetch_every == 1 or position + 1 in task.fetches

    @property
    def changes_parameters(self) -> bool:
        """Whether a task leaves the network's parameters other than it has fetched them."""
        own_steps = self.strategy.local_step and self.strategy.fetch_every != 1
        return own_steps or not self.exchange.sums_gradients

    # One learner for many workers

    @property
    def keeps_parameters(self) -> bool:
        """Whether a worker's own parameters matter beyond its task; else every task begins with a fetch."""
        return self.fragments is not None or (not self.exchange.fetch_first and self.strategy.fetch_every != 1)

    def state(self) -> LearnerState:
        parameters = None
        if self.keeps_parameters:
            parameters = self.local.clone() if self._source is None else self._source
        optimizer, counters = self._cloned_optimizer_state(), tuple(c.clone() for c in self.counters)
        exchange = {name: t.clone() for name, t in self.replica.state.items()}
        fetched = self.replica.fetched.clone() if self.fragments is not None else None
        return LearnerState(self._pulled, parameters, optimizer, exchange, counters, fetched)

    def _cloned_optimizer_state(self) -> tuple[State, ...]:
        return tuple({name: t.clone() for name, t in state.items()} for state in self.optimizer_state)

    def fresh(self) -> LearnerState:
        """The state of a worker that has just begun."""
        own = self.local[: self.parameters]
        exchange = {name: torch.zeros_like(own) for name in self.exchange.state}
        return LearnerState(0, None, self._fresh, exchange, tuple(torch.zeros_like(c) for c in self.counters))

    @torch.no_grad()
    def load_state(self, state: LearnerState) -> None:
        self._pulled = state.pulled
        if state.parameters is not None and state.parameters is not self._source:
            self.local.copy_(state.parameters)
            self._source = state.parameters
        if state.fetched is not None:
            self.replica.fetched.copy_(state.fetched)
        for mine, kept in zip(self.optimizer_state, state.optimizer, strict=True):
            for name, tensor in mine.items():
                tensor.copy_(kept[name])
        for name, tensor in self.replica.state.items():
            tensor.copy_(state.exchange[name])
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

    def _phases(self) -> list[PhaseGradient]:
        batch, dataset, made = self.parts.feeder.order.batch, self.parts.dataset, []
        for phase, end in zip(self.parts.phases, self.layout.phase_ends(), strict=True):
            piece = slice(*end)
            made.append(PhaseGradient(phase, self.local[piece], self.gradient[piece], batch, dataset))
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
