"""The record of a predicted pipeline: the time of a step with its bubble and traffic, and the memory of each stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.notebook import NotebookRecord
from paceline.trace import Trace


@dataclass(frozen=True)
class StagePrediction:
    layers: tuple[str, ...]
    forward_s: float
    """Of one micro-batch."""
    backward_s: float
    update_s: float
    idle_share: float
    """Of the time from the first forward pass to the last backward pass of a step."""
    parameter_bytes: int
    memory_bytes: int
    """Parameters, gradients, optimizer state, and activations of the micro-batches that it keeps at a time."""
    sent_bytes: int
    """Activations and their gradients that it sends in a step."""


@dataclass(frozen=True, repr=False)
class PipelinePrediction(NotebookRecord):
    name: str
    batch: int
    device: str
    replicas: int
    """Copies of the pipeline, each with a batch of its own."""
    microbatches: int
    schedule: str
    step_s: float
    low_s: float
    """Lower end of the 90 % interval of `step_s`, from the uncertainty of compute times."""
    high_s: float
    passes_s: float
    """From the first forward pass to the last backward pass."""
    exchange_s: float
    """Averaging gradients over copies."""
    idle_share: float
    """The bubble, on average over stages."""
    stages: tuple[StagePrediction, ...]
    samples: int
    """Samples per epoch; 0 if unknown."""
    basis: str
    trace: Trace
    """One step in virtual time."""

    @property
    def memory_bytes(self) -> int:
        """Of the stage that needs most."""
        return max(stage.memory_bytes for stage in self.stages)

    @property
    def shares_bytes(self) -> list[int]:
        """Memory of each process of a copy."""
        return [stage.memory_bytes for stage in self.stages]

    @property
    def processes(self) -> int:
        return self.replicas * len(self.stages)

    @property
    def idle_s(self) -> float:
        """Per step, on average over stages."""
        return self.idle_share * self.passes_s

    @property
    def samples_per_s(self) -> float:
        return self.replicas * self.batch / self.step_s

    @property
    def epoch_s(self) -> float:
        return -(-self.samples // (self.batch * self.replicas)) * self.step_s

    def facts(self) -> dict[str, Any]:
        return {
            "network": self.name, "batch": self.batch, "device": self.device, "stages": len(self.stages),
            "microbatches": self.microbatches, "schedule": self.schedule, "step_s": self.step_s, "low_s": self.low_s,
            "high_s": self.high_s, "idle_share": self.idle_share, "memory_bytes": self.memory_bytes,
            "samples/s": self.samples_per_s, "basis": self.basis,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        return [
            {"stage": number, "first layer": stage.layers[0], "last layer": stage.layers[-1], **vars(stage)}
            | {"layers": len(stage.layers)}
            for number, stage in enumerate(self.stages, start=1)
        ]
