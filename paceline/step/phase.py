"""A phase: parameters, the rule that updates them, and how their gradient is made.

Most workloads have one, a loss and its backward. Contrastive divergence, adversarial training and greedy
pre-training are phases whose `gradient` says something else; nothing above knows the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from paceline import user_code
from paceline.errors import WorkloadError
from paceline.step.losses import LOSSES, auxiliary_weight, total_loss
from paceline.step.optimizers import Rule
from paceline.workload import OPTIMIZERS, Workload

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one gradient gave. `output`, when there is one, is compared with the labels for accuracy.

    No loss means cross entropy, to be taken from `output` when it is asked for: log-probabilities, then.
    """

    loss: Tensor | None
    gradients: Sequence[Tensor | None]
    output: Tensor | None = None


@runtime_checkable
class Phase(Protocol):
    name: str
    parameters: Sequence[nn.Parameter]
    rule: Rule

    def gradient(self, batch: Batch, generator: torch.Generator) -> Outcome:
        """The gradient of `parameters` on one batch; random numbers come from `generator`."""
        ...


class LossPhase:
    """The default: the loss of the network's output, differentiated."""

    def __init__(self, network: nn.Module, workload: Workload, name: str = "train") -> None:
        self.name = name
        self.network = network
        self.parameters: Sequence[nn.Parameter] = [p for p in network.parameters() if p.requires_grad]
        self.rule = Rule.of(workload)
        self.loss_name = workload.loss
        self.loss = LOSSES[workload.loss]
        self.auxiliary_weight = auxiliary_weight(network)
        self.autocast = workload.precision == "bfloat16"

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss and the main output."""
        x, y = batch
        context = torch.autocast(x.device.type, torch.bfloat16) if self.autocast else nullcontext()
        with context:
            output = self.network(x)
            loss = total_loss(self.loss, output, y, self.auxiliary_weight)
        return loss, output if isinstance(output, Tensor) else output[0]

    def gradient(self, batch: Batch, generator: torch.Generator) -> Outcome:
        loss, output = self.forward(batch)
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return Outcome(loss.detach(), gradients, output.detach())


def phases_of(workload: Workload, network: nn.Module) -> list[Phase]:
    """The phases of a workload: the user's own, or a loss and its backward."""
    if not workload.phases:
        phase = LossPhase(network, workload)
        if not phase.parameters:
            raise WorkloadError(f"network {workload.network!r} has no parameters to train")
        return [phase]
    made = user_code.call(workload.phases, network, workload)
    if not isinstance(made, list | tuple) or not made:
        raise WorkloadError(f"{workload.phases} returned {made!r:.60}; it should return a list of phases")
    for phase in made:
        _check_phase(workload.phases, phase)
    return list(made)


def _check_phase(place: str, phase: Phase) -> None:
    if not isinstance(phase, Phase):
        raise WorkloadError(
            f"{place} returned a {type(phase).__name__}; a phase has name, parameters, rule and "
            "gradient(batch, generator)"
        )
    who = f"phase {phase.name!r} of {place}"
    if not isinstance(phase.rule, Rule) or phase.rule.optimizer not in OPTIMIZERS:
        raise WorkloadError(f"{who}: its rule should be a Rule, its optimizer one of {', '.join(OPTIMIZERS)}")
    if not isinstance(phase.parameters, list | tuple) or not phase.parameters:
        raise WorkloadError(f"{who}: its parameters should be a list with at least one, not {phase.parameters!r:.60}")
    if not all(isinstance(p, nn.Parameter) for p in phase.parameters):
        raise WorkloadError(f"{who}: its parameters should be nn.Parameter")
