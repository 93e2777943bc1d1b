"""Turns failures inside PyTorch that a user can do something about into one line that says what."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from paceline.data.dataset import Arrays, Dataset
from paceline.data.fields import Fields
from paceline.data.samples import Samples
from paceline.errors import NetworkError, PacelineError, WorkloadError, reason
from paceline.step import losses
from paceline.step.step import has_own_code
from paceline.workload import Workload

PIECE, MOST_READ = 1024, 10_000
"""Samples that are searched for a non-finite number at a time, and the most of those that must be read one by one."""


def likely_cause(dataset: Dataset, workload: Workload) -> str:
    """Why a loss is not finite, and what to do: a training sample that is not, else the learning rate."""
    part = dataset.train
    if isinstance(part, Arrays | Samples):
        searched = len(part) if isinstance(part, Arrays) else min(len(part), MOST_READ)
        for first in range(0, searched, PIECE):
            chosen = torch.arange(first, min(first + PIECE, searched))
            x, y = part.gather(chosen) if isinstance(part, Arrays) else part.read(chosen)
            for name, values in {**(x.tensors if isinstance(x, Fields) else {"x": x}), "y": y}.items():
                rows = values.reshape(len(values), -1)
                if values.is_floating_point() and not (finite := rows.isfinite().all(1)).all():
                    sample = first + int(finite.logical_not().nonzero()[0])
                    return f"{name} of training sample {sample} is not finite; leave such samples out of {dataset.name}"
    return f"lower the learning rate (lr={workload.lr:g})"


@contextmanager
def explained(workload: Workload) -> Iterator[None]:
    try:
        yield
    except (PacelineError, OSError):
        raise
    except Exception as error:
        text = str(error)
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text:
            raise PacelineError(
                f"out of memory with batches of {workload.batch}: use a smaller `batch` or a smaller network"
            ) from error
        if "more than 1 value per channel" in text:
            raise NetworkError(
                f"{workload.network} uses batch normalisation, and one batch has a single sample: "
                f"choose another `batch` than {workload.batch}"
            ) from error
        if shapes := shapes_at_loss(error):
            raise WorkloadError(
                f"loss {workload.loss} does not fit the output of {workload.network}: {shapes} ({reason(error)}); "
                "choose another `loss`, or pass your own"
            ) from error
        if has_own_code(workload):
            raise PacelineError(f"{workload.phases or workload.network} failed: {reason(error)}") from error
        raise


def shapes_at_loss(error: Exception) -> str:
    """What a built-in loss was called with, if it is what failed."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        output, target = (frame.f_locals.get(name) for name in ("output", "target"))
        here = frame.f_code.co_filename == losses.__file__
        if here and isinstance(output, Tensor) and isinstance(target, Tensor):
            return f"the output is {_shape_and_type(output)}, the target {_shape_and_type(target)}"
    return ""


def _shape_and_type(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
