"""The record of a predicted step with layers divided by feature or sharded parameters: time, traffic, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.notebook import NotebookRecord
from paceline.trace import Trace


@dataclass(frozen=True)
class DividedLayer:
    """One layer, or several that are gathered together, in one process."""

    name: str
    forward_s: float
    backward_s: float
    exchange_s: float
    """Of its collectives, whether they overlap with computing or not."""
    sent_bytes: int
    """By one process in a step."""


@dataclass(frozen=True, repr=False)
class DividedPrediction(NotebookRecord):
    name: str
    batch: int
    """Of each copy."""
    device: str
    replicas: int
    """Copies of the network, each with a batch of its own."""
    tensor: int
    """Processes that each linear layer is divided among."""
    shard: str
    """fsdp: the copies divide parameters, gradients and optimizer state among themselves."""
    step_s: float
    low_s: float
    """Lower end of the 90 % interval of `step_s`, from the uncertainty of compute times."""
    high_s: float
    compute_s: float
    """Forward and backward passes of one process."""
    exchange_s: float
    """Time in which a process exchanges and does not compute."""
    memory_bytes: int
    """Of one process: its share of parameters, gradients and optimizer state, what is gathered, and activations."""
    parameter_bytes: int
    """The share of one process."""
    sent_bytes: int
    """By one process in a step."""
    layers: tuple[DividedLayer, ...]
    samples: int
    """Samples per epoch; 0 if unknown."""
    basis: str
    trace: Trace
    """One step of one process in virtual time."""

    @property
    def processes(self) -> int:
        return self.replicas * self.tensor

    @property
    def shares_bytes(self) -> list[int]:
        """Memory of each process."""
        return [self.memory_bytes] * self.processes

    @property
    def idle_s(self) -> float:
        """No process waits for another except to exchange."""
        return 0.0

    @property
    def samples_per_s(self) -> float:
        return self.replicas * self.batch / self.step_s

    @property
    def epoch_s(self) -> float:
        return -(-self.samples // (self.batch * self.replicas)) * self.step_s

    def facts(self) -> dict[str, Any]:
        return {
            "network": self.name, "batch": self.batch, "device": self.device, "workers": self.replicas,
            "tensor": self.tensor, "shard": self.shard, "step_s": self.step_s, "low_s": self.low_s,
            "high_s": self.high_s, "exchange_s": self.exchange_s, "memory_bytes": self.memory_bytes,
            "sent_bytes": self.sent_bytes, "samples/s": self.samples_per_s, "basis": self.basis,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        return [dict(vars(layer)) for layer in self.layers]
