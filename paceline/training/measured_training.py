"""Measures a run while it trains: its steps are the same, and the layer clock samples some of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from paceline.errors import InputError
from paceline.measurement.measured_step import MeasuredStep
from paceline.measurement.measurement import Measurement
from paceline.measurement.measuring import measurement_of
from paceline.measurement.module_marks import check_supported
from paceline.step.make import StepChoice
from paceline.step.placement import cpu_settings_restored
from paceline.step.step import Step

if TYPE_CHECKING:
    from paceline.measurement.live_table import LiveView

FEWEST_ITERATIONS = 20
SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass
class Quarters:
    """When a quarter, half, three quarters and all of a run's iterations were done, in seconds of training."""

    planned: int = 0
    """Iterations of the whole run, or of what was left of it."""
    done: int = 0
    training_s: float = 0.0
    reached_s: dict[float, float] = field(default_factory=dict)
    """Seconds of training by share; shares that were not reached are missing."""

    def add(self, count: int, seconds: float) -> None:
        """`count` more iterations, equally long."""
        for share in SHARES:
            wanted = share * self.planned
            if self.done < wanted <= self.done + count:
                self.reached_s[share] = self.training_s + seconds * (wanted - self.done) / count
        self.done += count
        self.training_s += seconds


class TrainingClock:
    """Measures the layers of a run: pass it as `paceline.train(..., measure=clock)`, then call `measurement()`."""

    def __init__(self, *, live: bool = False) -> None:
        self.live: LiveView | None = None
        """What was measured so far, for a terminal, if asked for."""
        self._wants_live = live
        self.quarters = Quarters()
        """How long the training itself took, and when a quarter, half and so on of it was done."""
        self._watched: tuple[MeasuredStep, StepChoice, int] | None = None
        """The step, why it was chosen, and how many threads it has."""

    def watch(self, step: Step, choice: StepChoice, iterations: int) -> Step:
        """A step that trains as `step` does for the `iterations` that are left, watched by this clock."""
        if iterations < FEWEST_ITERATIONS:
            raise InputError(f"{iterations} iterations are too few to measure: at least {FEWEST_ITERATIONS}")
        check_supported()
        measured = MeasuredStep(step)
        order = step.parts.feeder.order
        measured.plan(iterations * order.full_batches // order.batches)  # a smaller last batch is not measured
        self._watched = measured, choice, torch.get_num_threads()
        if self._wants_live:
            from paceline.measurement.live_table import LiveView

            self.live = LiveView(measured.session, step.parts.workload.network)
        self.quarters = Quarters(planned=iterations)
        return measured

    def measurement(self) -> Measurement:
        """What was measured so far."""
        if self._watched is None:
            raise InputError("nothing was measured: give the clock to a run, paceline.train(workload, measure=clock)")
        step, choice, threads = self._watched
        workload = step.parts.workload
        more = {"lr": f"{workload.lr:g}", "epochs": str(workload.epochs), "seed": str(workload.seed)}
        with cpu_settings_restored():
            torch.set_num_threads(threads)
            return measurement_of(step, choice, more)
