"""Everything Paceline raises on purpose.

    PacelineError                exit 1   something failed while running
    ├── Diverged                 exit 1   the loss is no longer a number
    ├── Interrupted              exit 130 stopped by the user; the run can go on
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

import difflib
from collections.abc import Iterable


class PacelineError(Exception):
    exit_code = 1


class Diverged(PacelineError):
    pass


class Interrupted(PacelineError):
    exit_code = 130


class InputError(PacelineError, ValueError):
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


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the closest known ones, or all when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    return "known: " + ", ".join(names)
