"""Workspaces of convolutions on a GPU: measured beside the trials of a calibration, estimated for other sizes.

A library chooses an algorithm for each size at run time, and with it the workspace. Trials of similar sizes say how
large it is relative to the tensors of the convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

import torch

from paceline.cost.curve import Trial
from paceline.cost.families import CONVOLUTIONS, FAMILIES, Sizes
from paceline.cost.model import CostModel
from paceline.cost.operation import Operation

Workspaces = tuple[tuple[int, int], ...]
"""Of each operation: bytes in the first call with its sizes, and in later ones."""
NEAREST = 3
"""Trials that an estimate is the mean of."""


def measured_workspaces(call: Callable[[], object], device: torch.device) -> tuple[int, int]:
    """Bytes that a call needs beyond what it returns, the first time and later."""
    return extra_bytes(call, device), extra_bytes(call, device)


def extra_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Peak memory of a call beyond what it returns."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    made = call()
    torch.cuda.synchronize(device)
    peak, after = torch.cuda.max_memory_allocated(device), torch.cuda.memory_allocated(device)
    del made
    return max(0, peak - max(before, after))


def workspaces_of(model: CostModel, operations: Sequence[Operation]) -> Workspaces:
    """Estimates for all operations; none has one if the calibration did not measure any."""
    known: dict[tuple[str, Sizes, str, bool], tuple[int, int]] = {}
    found = []
    for operation in operations:
        key = operation.family, operation.sizes, operation.dtype, operation.channels_last
        if operation.family in CONVOLUTIONS and key not in known:
            known[key] = _estimate(model.trials_like(operation), operation)
        found.append(known.get(key, (0, 0)))
    return tuple(found) if any(map(any, found)) else ()


def _estimate(trials: Sequence[Trial], operation: Operation) -> tuple[int, int]:
    if not any(trial.first_workspace_bytes or trial.workspace_bytes for trial in trials):
        return 0, 0
    family = FAMILIES[operation.family]
    features = family.features_of(operation.sizes)

    def distance(trial: Trial) -> float:
        return sum((a - b) ** 2 for a, b in zip(family.features_of(trial.sizes), features, strict=True))

    own = [trial for trial in trials if trial.host_s > 0]  # layers of networks have no workspace of their own
    nearest = sorted(own, key=distance)[:NEAREST]
    moved = family.work_of(operation.sizes)[1]
    shares = [
        (trial.first_workspace_bytes / work, trial.workspace_bytes / work)
        for trial in nearest
        if (work := family.work_of(trial.sizes)[1])
    ]
    first, later = (mean(each) for each in zip(*shares, strict=True))
    return int(first * moved), int(later * moved)
