"""What validation reports beside loss and accuracy: the user's metric, or the one that the network brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from paceline import user_code
from paceline.errors import PacelineError, WorkloadError, a_type, reason
from paceline.networks.criterion import SampleMetric, metric_of_network
from paceline.step.phase import Batch
from paceline.workload import Workload


class Metric(Protocol):
    """Batches of the test data are added one by one."""

    name: str

    def add(self, batch: Batch, output: Tensor | None) -> None: ...

    def read(self) -> float:
        """The metric of what was added, which is then forgotten."""
        ...


def find_metric(workload: Workload, network: nn.Module) -> Metric | None:
    if workload.metric:
        return OwnMetric(workload.metric)
    found = metric_of_network(network)
    return None if found is None else NetworkMetric(found)


def metric_name(workload: Workload, network: nn.Module) -> str:
    """What the metric is called; empty: there is none."""
    found = metric_of_network(network)
    return workload.metric.rpartition(":")[2] or ("" if found is None else found.name)


class OwnMetric:
    """The user's: a function of all outputs and targets of the test data, as those of scikit-learn.

    Collects outputs and targets on the CPU; the function is called once for all of them.
    """

    def __init__(self, place: str) -> None:
        self.place, self.name = place, place.rpartition(":")[2]
        self.function: Callable[[Tensor, Tensor], Any] = user_code.find(place)
        if not callable(self.function):
            raise WorkloadError(f"metric {place} is {a_type(self.function)}; it should be a function")
        self.outputs: list[Tensor] = []
        self.targets: list[Tensor] = []

    def add(self, batch: Batch, output: Tensor | None) -> None:
        if output is None:
            raise WorkloadError(
                f"metric {self.place} needs outputs, and this loss has none: let a loss(model, batch) return "
                "(loss, output)"
            )
        self.outputs.append(output.detach().cpu())
        self.targets.append(batch[1].cpu())

    def read(self) -> float:
        outputs, targets = torch.cat(self.outputs), torch.cat(self.targets)
        self.outputs, self.targets = [], []
        try:
            return float(self.function(outputs, targets))
        except PacelineError:
            raise
        except Exception as error:
            raise WorkloadError(f"metric {self.place} failed: {reason(error)}") from error


class NetworkMetric:
    """The mean of a number per sample."""

    def __init__(self, metric: SampleMetric) -> None:
        self.name, self.of = metric.name, metric.of
        self.sums: list[Tensor] = []
        self.samples = 0

    def add(self, batch: Batch, output: Tensor | None) -> None:
        x, y = batch
        assert isinstance(x, Tensor), "built-in networks take one tensor per sample"
        with torch.no_grad():
            self.sums.append(self.of(x, y).double().sum())
        self.samples += len(y)

    def read(self) -> float:
        mean = float(torch.stack(self.sums).sum()) / self.samples
        self.sums, self.samples = [], 0
        return mean
