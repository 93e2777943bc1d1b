"""Measures a run while it trains: its steps are the same, and the layer clock samples some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.errors import InputError
from paceline.measurement.measured_step import MeasuredStep
from paceline.measurement.measurement import Measurement
from paceline.measurement.measuring import measurement_of
from paceline.measurement.module_marks import check_supported
from paceline.step.choose import StepChoice
from paceline.step.step import Step
from paceline.training.measured_quarters import Quarters

if TYPE_CHECKING:
    from paceline.measurement.live_table import LiveView

FEWEST_ITERATIONS = 20


class TrainingClock:
    """Given to a run as `clock`, it measures the run's layers; afterwards it has the `measurement`."""

    def __init__(self, *, live: bool = False) -> None:
        self.live: LiveView | None = None
        """What was measured so far, for a terminal, if asked for."""
        self._wants_live = live
        self.quarters = Quarters()
        """How long the training itself took, and when a quarter, half and so on of it was done."""
        self._watched: tuple[MeasuredStep, StepChoice] | None = None

    def watch(self, step: Step, choice: StepChoice, iterations: int) -> Step:
        """A step that trains as `step` does for the `iterations` that are left, watched by this clock."""
        if iterations < FEWEST_ITERATIONS:
            raise InputError(f"{iterations} iterations are too few to measure: at least {FEWEST_ITERATIONS}")
        check_supported()
        measured = MeasuredStep(step)
        order = step.parts.feeder.order
        measured.plan(iterations * order.full_batches // order.batches)  # a smaller last batch is not measured
        self._watched = measured, choice
        if self._wants_live:
            from paceline.measurement.live_table import LiveView

            self.live = LiveView(measured.session, step.parts.workload.network)
        self.quarters = Quarters(planned=iterations)
        return measured

    def measurement(self) -> Measurement:
        """What was measured so far."""
        if self._watched is None:
            raise InputError("nothing was measured: give the clock to a run, paceline.train(workload, measure=clock)")
        step, choice = self._watched
        workload = step.parts.workload
        more = {"lr": f"{workload.lr:g}", "epochs": str(workload.epochs), "seed": str(workload.seed)}
        return measurement_of(step, choice, more)
