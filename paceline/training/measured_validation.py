"""How long one validation takes, found out without a run: a pass over the test samples, or over a part of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch

from paceline.data.dataset import Dataset
from paceline.errors import PacelineError
from paceline.step.build import load_data, placed_network
from paceline.step.phase import comparable, phases_of
from paceline.step.placement import choose_device
from paceline.step.tally import Tally
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
                return _timed(evaluator, dataset, device, longest_s)
    except PacelineError as error:  # what was measured before is not lost for this
        return ValidationTime(float("nan"), f"not measured: {error}")


def _timed(evaluator: Evaluator, dataset: Dataset, device: torch.device, longest_s: float) -> ValidationTime:
    _pass(evaluator, device, 0.0)
    seconds, samples = _pass(evaluator, device, longest_s)
    everything = len(dataset.test)
    if samples == everything:
        return ValidationTime(seconds, f"one validation of {samples:,} samples")
    return ValidationTime(
        seconds * everything / samples, f"extrapolated to {everything:,} samples from {samples:,} of them"
    )


def _pass(evaluator: Evaluator, device: torch.device, longest_s: float) -> tuple[float, int]:
    """Seconds and samples of a pass that ends with the first batch after `longest_s`."""
    tally, samples = Tally(evaluator.workload.top), 0
    evaluator.network.eval()
    batches = evaluator.feeder.batches(0)
    start_s = perf_counter()
    for number, batch in enumerate(batches):
        outcome = evaluator._outcome(batch, number)
        tally.add(outcome.loss, comparable(outcome.output, batch), batch[1])
        samples += len(batch[1])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if perf_counter() - start_s >= longest_s:
            break
    tally.read()
    seconds = perf_counter() - start_s
    batches.close()
    return seconds, samples
