"""Where a run stands, as plain values: what a coordinator continues from, and what a checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.strategy.ledger import LedgerSummary


@dataclass(frozen=True)
class Position:
    """Where a coordinator stands, to continue from there: plain values only. Tasks under way count as not done."""

    version: int
    opened: int
    done: dict[str, tuple[int, ...]]
    """Batches done of the epochs that are open."""
    sequences: dict[str, int]
    """Tasks given so far to every worker that is alive or will be."""
    clocks: dict[str, int]
    """Rounds committed by every group."""
    ledger: LedgerSummary
