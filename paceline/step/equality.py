"""Whether a compiled step computes the same update as the step it was made from, as far as its precision can tell.

Another order of sums gives other roundings, and a network may amplify them: the first gradient of a deep network with
batch normalisation can differ by 100 % in bfloat16 and be right. So the tolerance is not a constant. Rounding an
operation differently has the effect of slightly different weights, so the uncompiled update is computed again with
weights that are changed in their last digit. What that changes is the noise; a compiled step may differ by a few times
as much, for all parameters together and for each tensor of them. On a GPU free memory is filled with NaN before, since
a kernel that reads memory it never wrote may give the right result by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.step.compiled_phase import CompiledPhase
from paceline.step.feeder import first_batch
from paceline.step.flat import FlatStep
from paceline.step.flat_parameters import FlatParameters
from paceline.step.phase import Batch
from paceline.step.poison import poison_free_memory
from paceline.step.snapshot import StepSnapshot
from paceline.step.step import Parts

LAST_DIGIT = {"float64": 2.0**-52, "float32": 2.0**-23, "tf32": 2.0**-10, "float16": 2.0**-10, "bfloat16": 2.0**-8}
"""The relative size of the last digit, by precision."""
PERTURBATIONS = 3
TIMES_NOISE = 10.0
"""A compiled update may differ by this many times the noise: of all parameters together, and of each tensor, whose own
noise counts beside that of all. Sums over a batch in another order round more than changed weights show."""
COMPILED_CALLS = 2
"""How often the compiled update is computed and compared: memory that a kernel reads unwritten differs by call."""
ROUNDINGS = 16.0
"""Noise is taken to be at least this many last digits of the update, and one last digit of the parameters."""


@dataclass(frozen=True)
class Difference:
    """Norms of updates: by how much the compiled one differs, and what is allowed. Equal if `excess` is at most 1."""

    excess: float
    relative: float
    noise: float

    def __str__(self) -> str:
        return f"the first update differs by {self.relative:.1e}, where rounding explains {self.noise:.1e}"


def compare_first_update(parts: Parts, step: FlatStep) -> Difference:
    """Compares the compiled phases of `step` with themselves, uncompiled. The state of the training is restored."""
    batch, digit = step.laid_out(first_batch(parts.feeder)), LAST_DIGIT[parts.workload.precision]
    before = StepSnapshot(parts.network, step, parts.generator)
    _update(parts, step, batch, compiled=True)  # in the first call the compiler tries kernels on these very tensors
    before.restore()
    compiled = []
    for _ in range(COMPILED_CALLS):
        poison_free_memory(parts.device)
        compiled.append(_update(parts, step, batch, compiled=True))
        before.restore()
    expected = _update(parts, step, batch, compiled=False)
    before.restore()
    noise = [_least_noise(phase.flat, each, digit) for phase, each in zip(step.phases, expected, strict=True)]
    for number in range(PERTURBATIONS):
        for phase in step.phases:
            signs = torch.Generator(parts.device).manual_seed(number)
            change = torch.randint(0, 2, phase.flat.buffer.shape, generator=signs, device=parts.device)
            phase.flat.buffer.mul_((2.0 * digit) * change + (1.0 - digit))
        found = _update(parts, step, batch, compiled=False)
        before.restore()
        noise = [torch.maximum(n, _norms(f, e)) for n, f, e in zip(noise, found, expected, strict=True)]
    each = [_compare(*three) for call in compiled for three in zip(call, expected, noise, strict=True)]
    return max(each, key=lambda difference: difference.excess)


def _update(parts: Parts, step: FlatStep, batch: Batch, *, compiled: bool) -> list[list[Tensor]]:
    """By phase, the change of every parameter."""
    changes = []
    for phase in step.phases:
        start = phase.flat.buffer.clone()
        parts.seed(0, 0)
        phase.lr.fill_(1.0)  # an update far above the last digit of the parameters
        take = phase.step if compiled or not isinstance(phase, CompiledPhase) else phase.uncompiled
        take(batch, parts.generator)
        changes.append([piece.double() for piece in phase.flat.split(phase.flat.buffer - start)])
    return changes


def _norms(one: list[Tensor], other: list[Tensor]) -> Tensor:
    return torch.stack([(a - b).norm() for a, b in zip(one, other, strict=True)]).cpu()


def _least_noise(flat: FlatParameters, expected: list[Tensor], digit: float) -> Tensor:
    """What rounding does at least. A tensor whose own update is tiny has nothing but the noise of the others in it."""
    updates, parameters = _sizes(expected), _sizes([view.double() for view in flat.views])
    of_updates = ROUNDINGS * digit * torch.maximum(updates, 1e-3 * updates.norm())
    return of_updates + torch.finfo(flat.buffer.dtype).eps * parameters


def _sizes(tensors: list[Tensor]) -> Tensor:
    return torch.stack([tensor.norm() for tensor in tensors]).cpu()


def _compare(compiled: list[Tensor], expected: list[Tensor], noise: Tensor) -> Difference:
    off, size = _norms(compiled, expected), _sizes(expected).norm().clamp_min(1e-300)
    noise = noise.clamp_min(1e-300)
    each, whole = off / (TIMES_NOISE * noise + noise.norm()), off.norm() / (TIMES_NOISE * noise.norm())
    excess = torch.maximum(each.max(), whole)
    finite = bool(torch.isfinite(off).all())
    return Difference(float(excess) if finite else float("inf"), float(off.norm() / size), float(noise.norm() / size))
