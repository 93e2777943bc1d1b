"""One gradient of the user's own code, on the first batch, before anything is built on it."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.data.fields import LABELS, Fields
from paceline.errors import NetworkError, PacelineError, a_type, reason
from paceline.step.failures import shapes_at_loss
from paceline.step.feeder import first_batch
from paceline.step.losses import LOSSES
from paceline.step.phase import Batch, Outcome, Phase
from paceline.step.step import Parts, has_own_code


def unused_parameters(parts: Parts) -> str | None:
    """Says that some parameters get no gradient; PyTorch leaves those as they are, so not every step will do.

    A gradient that cannot be taken, or is none, is an error in one line. Built-in networks need no trial.
    """
    if not has_own_code(parts.workload):
        return None
    batch = first_batch(parts.feeder)
    buffers = [(buffer, buffer.clone()) for buffer in parts.network.buffers()]
    outcomes = [_outcome(parts, phase, batch) for phase in parts.phases]
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)
    unused = any(g is None for outcome in outcomes for g in outcome.gradients)
    return "some parameters get no gradient" if unused else None


def _outcome(parts: Parts, phase: Phase, batch: Batch) -> Outcome:
    workload = parts.workload
    who = f"phase {phase.name!r} of {workload.phases}" if workload.phases else workload.network
    try:
        outcome = phase.gradient(batch, parts.generator)
    except (PacelineError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        for_labels = workload.loss in LOSSES and workload.loss != "squared"
        numbers = not parts.dataset.classes and not workload.phases and for_labels
        advice = "; for targets that are numbers use `loss='squared'`" if numbers else ""
        if isinstance(batch[0], Fields) and not batch[0].has_target:
            advice = f"; the data have no target: name a field {', '.join(LABELS[:-1])} or {LABELS[-1]}"
        if shapes := shapes_at_loss(error):
            raise NetworkError(
                f"loss {workload.loss} does not fit the output of {who}: {shapes} ({reason(error)}){advice}"
            ) from error
        raise NetworkError(f"{who} fails on the first batch of {workload.data}: {reason(error)}{advice}") from error
    wrong = _mistake(outcome, phase)
    if wrong:
        raise NetworkError(f"{who}: {wrong}")
    return outcome


def _mistake(outcome: Outcome, phase: Phase) -> str | None:
    if not isinstance(outcome, Outcome):
        return f"gradient returned {a_type(outcome)}; it should return an Outcome"
    if len(outcome.gradients) != len(phase.parameters):
        return f"{len(outcome.gradients)} gradients for {len(phase.parameters)} parameters; give one each, or None"
    for gradient, parameter in zip(outcome.gradients, phase.parameters, strict=True):
        if gradient is not None and gradient.shape != parameter.shape:
            return f"a gradient is {tuple(gradient.shape)}, its parameter {tuple(parameter.shape)}"
    if outcome.loss is None and outcome.output is None:
        return "an outcome needs a loss, or log-probabilities as its output"
    if outcome.loss is not None and not (isinstance(outcome.loss, Tensor) and outcome.loss.dim() == 0):
        return "the loss should be a tensor with one number and no dimensions"
    return None
