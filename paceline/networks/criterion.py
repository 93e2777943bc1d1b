"""How a network is trained, if not on the workload's loss of its output and the labels.

A network can have a method `criteria`, which returns the phases of its training; an attribute `metric`, which
validation reports instead of accuracy; a method `learned`, which returns the panels of a figure; and a method
`check_inputs`, which raises an error for data that the network cannot take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Criterion:
    """A loss and the parameters it trains, in all or in some epochs."""

    name: str
    parameters: Sequence[nn.Parameter]
    loss: Callable[[Tensor, Tensor], Tensor | tuple[Tensor, Tensor]]
    """From inputs and labels to the loss; where samples are classified, to the loss and the scores of the classes. Only
    its gradient trains; its value is what is reported."""
    epochs: tuple[int, int | None] = (0, None)
    """The first epoch in which it trains, from 0, and the one after the last; None: to the end."""
    rate: float = 1.0
    """Multiplies the workload's learning rate."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the optimizer that differ from the workload's, e.g. `{"schedule": "constant"}`."""


@dataclass(frozen=True, eq=False)
class SampleMetric:
    """A number per test sample; lower is better, and validation reports the mean."""

    name: str
    of: Callable[[Tensor, Tensor], Tensor]
    """From inputs and labels to one number per sample."""


@runtime_checkable
class HasCriteria(Protocol):
    def criteria(self) -> Sequence[Criterion]: ...


@runtime_checkable
class HasInputCheck(Protocol):
    def check_inputs(self, x: Tensor) -> None:
        """Raises `NetworkError` where values of these samples do not fit; it is called once, before training."""
        ...


def metric_of_network(network: nn.Module) -> SampleMetric | None:
    """The metric that a network defines; None: it is a classifier, and accuracy is reported."""
    found = getattr(network, "metric", None)
    return found if isinstance(found, SampleMetric) else None
