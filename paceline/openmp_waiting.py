"""How long threads of an operation wait actively for each other before they sleep.

PyTorch divides an operation among OpenMP's threads, and GNU's library lets them wait actively for about a millisecond
before they sleep. On a machine with other work, one thread often waits for a core that another one keeps busy with
waiting: a step with two threads on two busy cores took seven times as long as with a short wait. The library reads the
variable when it is loaded, so it has to be set before PyTorch is imported.
"""

from __future__ import annotations

from collections.abc import MutableMapping

SPIN_COUNT = 10_000
"""Some tens of microseconds: longer than from one operation of a network to the next."""
_SPIN, _POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Sets the variable, unless the user has set how to wait."""
    if _SPIN not in environment and _POLICY not in environment:
        environment[_SPIN] = str(SPIN_COUNT)
