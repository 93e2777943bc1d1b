"""The step: one gradient on one batch and one update, for every phase. Four kinds of it share this shape."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from paceline.data.dataset import Dataset
from paceline.step.feeder import Feeder
from paceline.step.loss_scaling import scalers_of
from paceline.step.phase import Batch, Outcome, Phase
from paceline.step.randomness import mix
from paceline.step.schedule import rate_at
from paceline.step.tally import Tally
from paceline.workload import Workload

_STEP = 0x57E9  # keeps a step's random numbers apart from other uses of the same seed


@dataclass(frozen=True, eq=False)
class Parts:
    """What a workload was turned into, before the choice of a step."""

    workload: Workload
    dataset: Dataset
    network: nn.Module
    phases: list[Phase]
    feeder: Feeder
    device: torch.device
    generator: torch.Generator
    random: bool
    """Whether a step draws random numbers; if it does not, seeding each one is saved."""

    @property
    def updates_per_epoch(self) -> int:
        return self.feeder.order.batches

    def rate(self, phase: Phase, epoch: int, step: int) -> float:
        """The learning rate of a phase at a step of an epoch."""
        return rate_at(phase.rule, epoch, step, self.updates_per_epoch, self.workload.epochs)

    def active(self, epoch: int) -> list[Phase]:
        """The phases that are trained in an epoch."""
        return [phase for phase in self.phases if phase.rule.trains_in(epoch)]

    def seed(self, epoch: int, step: int, worker: int | None = None, turn: int = 0) -> None:
        """Makes the random numbers of a step a function of (seed, worker, epoch, step), and of a later phase's turn."""
        if self.random:
            worker = self.feeder.order.worker if worker is None else worker
            seed = step_seed(self.workload.seed, worker, epoch, step)
            self.generator.manual_seed(mix(seed, turn) if turn else seed)


def has_own_code(workload: Workload) -> bool:
    """Whether a gradient runs code of the user's own, of which nothing is known."""
    return ":" in workload.network or ":" in workload.loss or bool(workload.phases)


def step_seed(seed: int, worker: int, epoch: int, step: int) -> int:
    return mix(_epoch_seed(seed, worker, epoch), step)


@functools.lru_cache(maxsize=1024)
def _epoch_seed(seed: int, worker: int, epoch: int) -> int:
    return mix(_STEP, seed, worker, epoch)


class Step(ABC):
    """Trains batch after batch: `begin` an epoch, then `advance` through it as far as wanted."""

    kind: ClassVar[str]

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.epoch = 0
        self.next = 0
        self._batches: Iterator[Batch] = iter(())

    def begin(self, epoch: int, first: int = 0) -> None:
        self.epoch, self.next = epoch, first
        self._batches = self.parts.feeder.batches(epoch, first)

    def advance(self, count: int, tally: Tally) -> None:
        """`count` more steps; their losses and accuracy go to `tally`."""
        for _ in range(count):
            batch = next(self._batches)
            self.parts.seed(self.epoch, self.next)
            outcome = self.take(batch)
            self.next += 1
            tally.add(outcome.loss, outcome.output, batch[1])

    @abstractmethod
    def take(self, batch: Batch) -> Outcome:
        """One step on `batch`, at position (`epoch`, `next`)."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The optimizers' state, as tensors and plain values."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None: ...

    def scaling_state(self) -> dict[str, Any]:
        """The part of the state that loss scaling adds; empty without it."""
        scalers = scalers_of(self.parts.phases)
        return {"scaling": [dict(scaler.state) for scaler in scalers]} if scalers else {}

    def load_scaling(self, state: dict[str, Any]) -> None:
        for scaler, saved in zip(scalers_of(self.parts.phases), state.get("scaling", []), strict=True):
            scaler.load_state(saved)

    def show(self) -> None:
        """Brings the network up to date, where the parameters are elsewhere while it is trained."""
        return

    def stop(self) -> None:
        """Ends the epoch early; another step of the same parts may begin one then."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def close(self) -> None:
        self.stop()
        self.parts.feeder.close()


def reported(outcomes: list[Outcome]) -> Outcome:
    """Of several phases' outcomes the one to report: the first that can be compared with labels."""
    return next((o for o in outcomes if o.output is not None), outcomes[0])
