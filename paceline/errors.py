"""Everything Paceline raises on purpose.

    PacelineError                exit 1   something failed while running
    ├── Diverged                 exit 1   the loss is no longer a number
    ├── Interrupted              exit 130 stopped by the user; the run can be resumed
    └── InputError (ValueError)  exit 2   what was asked for cannot be done as asked
        ├── WorkloadError                 a key, a value or a name of a workload
        ├── StrategyError                 a strategy that is unknown, or does not fit its workers
        ├── DataError                     a data set that is missing, corrupt or unsuitable
        ├── NetworkError                  a network that does not fit the data, or does not exist
        ├── RecordError                   a record that cannot be read
        ├── CheckpointError               a checkpoint that cannot be read or belongs elsewhere
        └── OutputError                   a place that cannot be written

An error is one line: which argument, which value, and what to do.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator


class PacelineError(Exception):
    """Every error that Paceline raises on purpose; its message is one line."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        """Objects that were given in Python are `object:NAME` in a workload; users know them by the name alone."""
        super().__init__(re.sub(r"(?<![\w.])object:", "", message))


class Diverged(PacelineError):
    pass


class Interrupted(PacelineError):
    exit_code = 130


class InputError(PacelineError, ValueError):
    """An argument, a setting or a file that cannot be used: its message says which one, and what to do."""

    exit_code = 2


class WorkloadError(InputError):
    pass


class StrategyError(InputError):
    pass


class DataError(InputError):
    pass


class NetworkError(InputError):
    pass


class RecordError(InputError):
    pass


class CheckpointError(InputError):
    pass


class OutputError(InputError):
    pass


@contextlib.contextmanager
def located(place: str) -> Iterator[None]:
    """Errors in what users gave begin with its `place`, such as a file or a section."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}{error}") from error


ELSEWHERE = {
    "learning_rate": "lr", "batch_size": "batch", "num_epochs": "epochs", "num_train_epochs": "epochs",
    "max_epochs": "epochs", "num_workers": "workers", "n_workers": "workers", "world_size": "workers",
    "random_state": "seed", "dtype": "precision", "amp": "precision", "max_grad_norm": "clip_norm",
    "gradient_clip_val": "clip_norm", "gradient_accumulation_steps": "accumulate",
    "accumulate_grad_batches": "accumulate", "criterion": "loss", "loss_fn": "loss", "lr_scheduler": "schedule",
    "scheduler": "schedule", "model": "network", "dataset": "data", "output_dir": "out", "num_threads": "threads",
}  # fmt: skip
"""Names that other libraries have for a setting."""


CLOSE = 0.15
"""How much less alike than the closest name another may be to be suggested, too."""


def nearest(word: str, known: Iterable[str], *, or_custom: bool = False) -> str:
    """The end of an error about an unknown name: the closest known ones, or all when none is close.

    `or_custom`: the user's own may be named instead.
    """
    names = sorted(known)
    same = ELSEWHERE.get(word.replace("-", "_"))
    close = [same] if same in names else difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    likeness = {name: difflib.SequenceMatcher(None, name, word).ratio() for name in close}
    close = [name for name in close if likeness[name] >= max(likeness.values()) - CLOSE]
    if close:
        named = " or ".join(filter(None, (", ".join(close[:-1]), close[-1])))
        return f"did you mean {named}{' (or a custom module:name)' * or_custom}?"
    return f"known: {', '.join(names)}{', or a custom module:name' * or_custom}"


def a_type(value: object) -> str:
    """The type of a value that should have been another: `an int`, `a list`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def reason(error: BaseException) -> str:
    """Why something failed, in one line: what a message about a failure ends with."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text:.160}" if text else type(error).__name__
