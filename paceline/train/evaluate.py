"""Accuracy and loss of a network on the test part of a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from paceline.data.dataset import Dataset
from paceline.errors import DataError
from paceline.step.build import build_network, load_data, set_threads
from paceline.step.feeder import Feeder, make_feeder
from paceline.step.order import Order
from paceline.step.phase import LossPhase
from paceline.step.placement import available_cores, choose_device, dtype_of, set_number_formats
from paceline.step.tally import Score, Tally
from paceline.train.checkpoint import load_checkpoint, load_parameters
from paceline.workload import Workload, with_settings

# Larger batches only cost memory; smaller ones launch more often than needed.
VALUES_A_BATCH = 1 << 22


class Evaluator:
    """Holds the test part where it is used, so that validating after each epoch costs only the forward pass."""

    def __init__(self, workload: Workload, network: nn.Module, dataset: Dataset, device: torch.device) -> None:
        self.workload, self.network = workload, network
        self.phase = LossPhase(network, workload)
        samples = len(dataset.test)
        values = max(1, torch.Size(dataset.shape).numel())
        batch = max(1, min(samples, VALUES_A_BATCH // values, 2000))
        order = Order(samples, batch, workload.seed, shuffle=False)
        self.feeder: Feeder = make_feeder(
            dataset, order, device, dtype_of(workload), training=False, readers=available_cores()
        )

    @torch.no_grad()
    def score(self) -> Score:
        tally = Tally(self.workload.top)
        self.network.eval()
        try:
            for x, y in self.feeder.batches(0):
                loss, output = self.phase.forward((x, y))
                tally.add(loss, output if isinstance(output, Tensor) else None, y)
        finally:
            self.network.train()
        return tally.read()

    def close(self) -> None:
        self.feeder.close()


@dataclass(frozen=True)
class Evaluation:
    run: str
    workload: Workload
    data: str
    samples: int
    loss: float
    accuracy: float
    top_accuracy: float


def evaluate(
    run: str | Path, data: str | None = None, device: str | None = None, cache: Path | None = None
) -> Evaluation:
    """How well the saved parameters of a run do on its own test data, or on other data."""
    path = Path(run)
    checkpoint = load_checkpoint(path)
    changes = {"data": data, "device": device}
    workload = with_settings(checkpoint.workload, {k: v for k, v in changes.items() if v is not None})
    place, _ = choose_device(workload.device)
    dataset = load_data(_any_batch(workload), cache)
    if not len(dataset.test):
        raise DataError(f"{workload.data} has no test samples")
    set_number_formats(workload, place)
    network = build_network(workload, dataset)
    if place.type == "cpu":
        set_threads(workload, network, dataset)
    load_parameters(network, checkpoint, path)
    evaluator = Evaluator(workload, network.to(place), dataset, place)
    try:
        score = evaluator.score()
    finally:
        evaluator.close()
    return Evaluation(str(path), workload, workload.data, score.samples, score.loss, score.accuracy, score.top_accuracy)


def _any_batch(workload: Workload) -> Workload:
    """Evaluating needs no training batch, so a small data set is no obstacle."""
    return with_settings(workload, {"batch": 1})
