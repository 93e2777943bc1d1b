"""How long one validation takes, found out without a run: a pass over the test samples, or over a part of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from paceline.errors import PacelineError
from paceline.step.build import load_data, placed_network
from paceline.step.phase import phases_of
from paceline.step.placement import choose_device
from paceline.training.evaluate import Evaluator
from paceline.training.failures import explained
from paceline.workload import Workload

LONGEST_S = 10.0


@dataclass(frozen=True)
class ValidationTime:
    seconds: float
    """Not a number where there is nothing to validate on."""
    how: str


def time_validation(workload: Workload, *, cache: Path | None = None, longest_s: float = LONGEST_S) -> ValidationTime:
    """One validation as training has it, after a batch that warms up; beyond `longest_s` it is extrapolated."""
    device, _ = choose_device(workload.device)
    try:
        with explained(workload):
            dataset = load_data(workload, cache)
            network = placed_network(workload, dataset, device)
            with closing(Evaluator(workload, network, phases_of(workload, network), dataset, device)) as evaluator:
                return _timed(evaluator, len(dataset.test), longest_s)
    except PacelineError as error:  # what was measured before is not lost for this
        return ValidationTime(float("nan"), f"not measured: {error}")


def _timed(evaluator: Evaluator, everything: int, longest_s: float) -> ValidationTime:
    evaluator.score(longest_s=0.0)
    start_s = perf_counter()
    samples = evaluator.score(longest_s).samples
    seconds = perf_counter() - start_s
    if samples == everything:
        return ValidationTime(seconds, f"one validation of {samples:,} samples")
    how = f"extrapolated to {everything:,} samples from {samples:,} of them"
    return ValidationTime(seconds * everything / samples, how)
