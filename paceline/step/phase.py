"""A phase: parameters, the rule that updates them, and how their gradient is made.

Most workloads have one, a loss and its backward. Contrastive divergence, adversarial training and greedy
pre-training are phases whose `gradient` says something else; nothing above knows the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from paceline import user_code
from paceline.data.dataset import Arrays
from paceline.data.fields import Fields, Inputs, as_given
from paceline.errors import NetworkError, WorkloadError, a_type
from paceline.networks.criterion import Criterion, HasCriteria
from paceline.step.calling import call_network, model_loss, scores_of
from paceline.step.gradient_hooks import OnGradient, announced
from paceline.step.loss_scaling import LossScaler
from paceline.step.losses import LOSSES, auxiliary_weight, class_dimension, cross_entropy, total_loss
from paceline.step.optimizers import Rule
from paceline.step.own_loss import OwnLoss
from paceline.workload import OPTIMIZERS, Workload

AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""Types that autocast computes in, by precision."""
Batch = tuple[Inputs, Tensor]
"""Inputs and target; the inputs are a tensor, or several by name."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one gradient gave. `output`, when there is one, is compared with the labels for accuracy.

    No loss means cross entropy, to be taken from `output` when it is asked for: log-probabilities, then. Where scores
    are too many to be kept, `output` is the rank of each target among them, as integers (`tally.ranks_of`).
    """

    loss: Tensor | None
    gradients: Sequence[Tensor | None]
    output: Tensor | None = None


@runtime_checkable
class Phase(Protocol):
    """Parameters and how one gradient of them is computed; most workloads have a single phase."""

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
        self.loss = LOSSES.get(workload.loss, cross_entropy)
        self.own_loss = OwnLoss.find(workload.loss) if ":" in workload.loss else None
        self.auxiliary_weight = auxiliary_weight(network)
        self.autocast = AUTOCAST.get(workload.precision)
        device = next(network.parameters(), torch.empty(0)).device
        self.scaler = LossScaler(device) if workload.precision == "float16" else None
        self.micro_batch = -(-workload.batch // workload.accumulate) if workload.accumulate > 1 else None
        self.on_gradient: OnGradient | None = None
        """Called during the backward pass; of micro-batches during the last one, with the sums of their gradients."""

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The loss, and the output to compare with the target if there is one."""
        with self._autocast(batch):
            return self._loss(batch)

    def _autocast(self, batch: Batch, *, enabled: bool = True) -> AbstractContextManager[None]:
        if not self.autocast:
            return nullcontext()
        return torch.autocast(batch[0].device.type, self.autocast, enabled=enabled)

    def _loss(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        if self.own_loss is not None and self.own_loss.takes_model:
            return self.own_loss.of_model(self.network, as_given(batch))
        return self._loss_of_output(*batch)

    def _loss_of_output(self, x: Inputs, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """The network's own loss, if it returns one, goes before the default cross entropy."""
        output = call_network(self.network, x, labels=self.loss_name in ("cross-entropy", "model"))
        return self.loss_of(output, y)

    def loss_of(self, output: Any, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """The loss of what the network returned, and the output to compare with the target if there is one."""
        scores = scores_of(output)
        main = scores[0] if isinstance(scores, tuple) and scores else scores
        main = main if isinstance(main, Tensor) else None
        if self.own_loss is not None:
            return self.own_loss.checked(self.own_loss.function(scores, y)), main
        if self.loss_name in ("cross-entropy", "model"):
            loss = model_loss(output)
            if loss is not None:
                return loss, main
        if self.loss_name == "model" or main is None:
            missing = "loss" if self.loss_name == "model" else "logits"
            raise NetworkError(
                f"the network returned {a_type(output)} without .{missing}; return a tensor or an object with "
                ".logits or .loss, or use a loss(model, batch)"
            )
        return total_loss(self.loss, scores, y, self.auxiliary_weight), main

    def gradient(self, batch: Batch, generator: torch.Generator) -> Outcome:
        if self.micro_batch is not None and len(batch[1]) > self.micro_batch:
            return self._accumulated(batch, self.micro_batch)
        loss, output = self.forward(batch)
        gradients = self._gradients(loss, self.on_gradient)
        return Outcome(loss.detach(), gradients, comparable(output, batch))

    def _gradients(self, loss: Tensor, on_gradient: OnGradient | None = None) -> tuple[Tensor | None, ...]:
        """With loss scaling those of the scaled loss: whoever updates the parameters divides them."""
        scaled = loss if self.scaler is None else self.scaler.scaled(loss)
        if on_gradient is None:
            return torch.autograd.grad(scaled, self.parameters, allow_unused=True)
        with announced(self.parameters, on_gradient):
            return torch.autograd.grad(scaled, self.parameters, allow_unused=True)

    def _accumulated(self, batch: Batch, size: int) -> Outcome:
        """The gradient as a sum over micro-batches, whose losses count by their samples."""
        whole = Arrays(*batch)
        losses, outputs = [], []
        total: list[Tensor | None] = [None for _ in self.parameters]
        with self._autocast(batch):  # weights are cast once: the casts are kept until the outermost context ends
            for start in range(0, len(whole), size):
                x, y = whole.rows(slice(start, start + size))
                loss, output = self.forward((x, y))
                with self._autocast(batch, enabled=False):
                    loss = loss / (len(whole) / len(y))
                    if self.on_gradient is not None and start + size >= len(whole):
                        self._gradients(loss, _summing(total, self.on_gradient))
                    else:
                        gradients = self._gradients(loss)
                        total = [_sum(so_far, gradient) for so_far, gradient in zip(total, gradients, strict=True)]
                    losses.append(loss.detach())
                    outputs.append(comparable(output, (x, y)))
        found = [output for output in outputs if output is not None]
        output = torch.cat(found) if len(found) == len(outputs) else None
        return Outcome(torch.stack(losses).sum(), total, output)


class CriterionPhase(LossPhase):
    """A loss that the network brings with it, for the parameters that it names."""

    def __init__(self, network: nn.Module, workload: Workload, criterion: Criterion) -> None:
        super().__init__(network, workload, criterion.name)
        self.criterion = criterion
        self.parameters = [p for p in criterion.parameters if p.requires_grad]
        rule = replace(self.rule, lr=criterion.rate * self.rule.lr, epochs=criterion.epochs)
        self.rule = replace(rule, **criterion.settings)

    def _loss(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        x, y = batch
        assert isinstance(x, Tensor), "built-in networks take one tensor per sample"
        found = self.criterion.loss(x, y)
        return found if isinstance(found, tuple) else (found, None)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other


def _summing(total: Sequence[Tensor | None], on_gradient: OnGradient) -> OnGradient:
    """Adds each gradient to the total before it is passed on."""

    def add(number: int, gradient: Tensor) -> None:
        so_far = total[number]
        on_gradient(number, gradient if so_far is None else so_far + gradient)

    return add


def announces_gradients(phase: Phase) -> bool:
    """Whether one backward pass, which calls `on_gradient`, computes what `gradient` returns."""
    if not isinstance(phase, LossPhase) or phase.scaler is not None:
        return False
    kind = type(phase)
    return all(getattr(kind, name) is getattr(LossPhase, name) for name in ("gradient", "_gradients", "_accumulated"))


def comparable(output: Tensor | None, batch: Batch) -> Tensor | None:
    """The output where it has scores for classes, one row for each target; else accuracy is not defined.

    Of labels for tokens that came with other fields the model alone knows which prediction belongs to which.
    """
    x, y = batch
    if output is None or y.is_floating_point():
        return None
    tokens = isinstance(x, Fields) and y.dim() > 1
    if output.dim() != y.dim() + 1 or tokens:
        return None
    output = output.detach()
    ways = (output.movedim(class_dimension(output), -1), output)
    return next((scores for scores in ways if scores.shape[:-1] == y.shape), None)


def phases_of(workload: Workload, network: nn.Module) -> list[Phase]:
    """The phases of a workload: the user's own, those that the network brings, or a loss and its backward."""
    if workload.phases:
        made = user_code.call(workload.phases, network, workload)
        if not isinstance(made, list | tuple) or not made:
            raise WorkloadError(f"{workload.phases} returned {made!r:.60}; it should return a list of phases")
        for phase in made:
            _check_phase(workload.phases, phase)
        return _in_every_epoch(workload, list(made))
    if isinstance(network, HasCriteria) and workload.loss in ("cross-entropy", "model"):
        return _in_every_epoch(workload, [CriterionPhase(network, workload, each) for each in network.criteria()])
    phase = LossPhase(network, workload)
    if not phase.parameters:
        raise WorkloadError(f"network {workload.network!r} has no parameters to train")
    return [phase]


def _in_every_epoch(workload: Workload, phases: list[Phase]) -> list[Phase]:
    """A run with an epoch in which nothing is trained is refused."""
    ends = {0, *(phase.rule.epochs[1] or 0 for phase in phases)}
    for epoch in sorted(ends):
        if epoch < workload.epochs and not any(phase.rule.trains_in(epoch) for phase in phases):
            who = workload.phases or workload.network
            raise WorkloadError(f"no phase of {who} is trained in epoch {epoch + 1}: `epochs={workload.epochs}`")
    return phases


def stages_of(phases: Sequence[Phase], epochs: int) -> tuple[int, ...]:
    """The epochs, counted from 1, from which other phases are trained than before."""
    ends = {end for phase in phases for end in phase.rule.epochs if end}
    return tuple(epoch + 1 for epoch in sorted(ends) if epoch < epochs)


def never_trained(phases: Sequence[Phase], workload: Workload) -> tuple[str, ...]:
    """One line for each phase that the run ends before."""
    return tuple(
        f"{workload.network} ends before its phase {phase.name!r}, which begins in epoch {phase.rule.epochs[0] + 1}: "
        f"train for more than `epochs={workload.epochs}`"
        for phase in phases
        if phase.rule.epochs[0] >= workload.epochs
    )


def share_a_parameter(phases: Sequence[Phase]) -> bool:
    """Whether one parameter belongs to two phases that are trained at the same time."""
    for place, phase in enumerate(phases):
        mine = set(map(id, phase.parameters))
        for other in phases[:place]:
            first = max(phase.rule.epochs[0], other.rule.epochs[0])
            if (
                phase.rule.trains_in(first)
                and other.rule.trains_in(first)
                and mine.intersection(map(id, other.parameters))
            ):
                return True
    return False


def _check_phase(place: str, phase: Phase) -> None:
    if not isinstance(phase, Phase):
        raise WorkloadError(
            f"{place} returned {a_type(phase)}; a phase has name, parameters, rule and gradient(batch, generator)"
        )
    who = f"phase {phase.name!r} of {place}"
    rule = phase.rule
    if not isinstance(rule, Rule) or (rule.optimizer not in OPTIMIZERS and ":" not in rule.optimizer):
        known = ", ".join(OPTIMIZERS)
        raise WorkloadError(f"{who}: its rule should be a Rule, its optimizer one of {known}, or module:name")
    if not isinstance(phase.parameters, list | tuple) or not phase.parameters:
        raise WorkloadError(f"{who}: its parameters should be a list with at least one, not {phase.parameters!r:.60}")
    if not all(isinstance(p, nn.Parameter) for p in phase.parameters):
        raise WorkloadError(f"{who}: its parameters should be nn.Parameter")
    first, end = rule.epochs
    if first < 0 or (end is not None and end <= first):
        raise WorkloadError(
            f"{who}: epochs={rule.epochs} should be the first epoch, from 0, and the one after the last"
        )
