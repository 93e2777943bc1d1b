"""The part of a run's record that says how one network was divided among processes, and where their time went."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessRecord:
    """One process: its place, its share of the network, and its seconds of training."""

    replica: int
    stage: int
    layers: tuple[str, ...]
    parameters: int
    forward_s: float = 0.0
    backward_s: float = 0.0
    update_s: float = 0.0
    communicate_s: float = 0.0
    """Averaging gradients."""
    load_s: float = 0.0
    idle_s: float = 0.0
    """Waiting for other stages, and handing activations and their gradients over."""
    passes: int = 0
    """Micro-batches that went through it, forward and backward."""
    peak_memory_bytes: int = 0

    @property
    def pass_s(self) -> float:
        """Seconds of one micro-batch, forward and backward."""
        return (self.forward_s + self.backward_s) / self.passes if self.passes else math.nan

    @property
    def idle_share(self) -> float:
        """Of the passes of all steps: between the first micro-batch and the last gradient."""
        busy_s = self.forward_s + self.backward_s
        return self.idle_s / (busy_s + self.idle_s) if busy_s else math.nan


@dataclass(frozen=True)
class Division:
    replicas: int
    """Copies of the network, each on other batches."""
    pipeline: int
    """Stages of each copy."""
    microbatches: int
    schedule: str
    cut: tuple[str, ...]
    """The first layer of each stage."""
    cut_by: str
    """Where the cut comes from."""
    processes: tuple[ProcessRecord, ...] = ()
    tensor: int = 1
    """Processes that each linear layer is divided among."""
    shard: str = "none"
    """fsdp: the copies divide parameters, gradients and optimizer state among themselves."""
    predicted_idle_share: float = math.nan
    """From the expected times of the stages and of hand-overs; NaN if the network is not cut."""

    @property
    def idle_share(self) -> float:
        """On average over all processes."""
        known = [process.idle_share for process in self.processes if not math.isnan(process.idle_share)]
        return sum(known) / len(known) if known else math.nan

    def __str__(self) -> str:
        each = [
            *([f"pipeline of {self.pipeline} stages"] if self.pipeline > 1 else []),
            *([f"linear layers divided among {self.tensor} processes"] if self.tensor > 1 else []),
            *(["parameters divided among the copies (fsdp)"] if self.shard == "fsdp" else []),
        ]
        copies = f"{self.replicas} × " if self.replicas > 1 else ""
        micro = f", {self.microbatches} micro-batches" if self.microbatches > 1 else ""
        return f"{copies}{', '.join(each) or 'one process'}{micro}" + f" ({self.schedule})" * (self.pipeline > 1)
