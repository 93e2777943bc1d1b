"""Turns failures inside PyTorch that a user can do something about into one line that says what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from paceline.errors import NetworkError, PacelineError
from paceline.step.reason import reason
from paceline.step.step import has_own_code
from paceline.workload import Workload


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
                f"{workload.network} normalises over the samples of a batch and one batch has a single one: "
                f"choose another `batch` than {workload.batch}"
            ) from error
        if has_own_code(workload):
            raise PacelineError(f"{workload.phases or workload.network} failed: {reason(error)}") from error
        raise
