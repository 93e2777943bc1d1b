"""What happens to a payload that is not finite: the run stops, or goes on without it for as long as others come."""

from __future__ import annotations

from paceline.errors import StrategyError

POLICIES = ("skip", "stop")
TOO_OFTEN = 100
"""So many in a row mean that nothing is learnt any more."""


def check_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise StrategyError(f"on-bad-gradient {policy!r} should be {' or '.join(POLICIES)}")
