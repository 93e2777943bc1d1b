"""What became of every payload: the counts that prove that nothing was lost and nothing counted twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from paceline.record_fields import BY_NUMBER


@dataclass(frozen=True)
class LedgerSummary:
    """The ledger as it goes into a record. Batches; an undisturbed run applies all and has no others."""

    updates: int = 0
    applied: int = 0
    dropped: int = 0
    refused: int = 0
    returned: int = 0
    """Given out again because a worker did not finish them."""
    applied_by_epoch: tuple[int, ...] = ()
    staleness: dict[str, int] = field(default_factory=dict, metadata=BY_NUMBER)
    """How many payloads had which staleness."""

    @property
    def closed(self) -> int:
        """Batches that need no more doing."""
        return self.applied + self.dropped + self.refused

    @property
    def mean_staleness(self) -> float:
        count = sum(self.staleness.values())
        return sum(int(s) * n for s, n in self.staleness.items()) / count if count else 0.0

    def staleness_up_to(self, share: float) -> int:
        """The least staleness that so large a share of payloads did not exceed."""
        left = share * sum(self.staleness.values())
        last = 0
        for staleness, count in sorted((int(s), n) for s, n in self.staleness.items()):
            last, left = staleness, left - count
            if left <= 0:
                break
        return last


@dataclass
class Ledger:
    updates: int = 0
    applied: Counter[int] = field(default_factory=Counter)
    """Batches by epoch."""
    dropped: int = 0
    refused: int = 0
    returned: int = 0
    staleness: Counter[int] = field(default_factory=Counter)

    def summary(self) -> LedgerSummary:
        epochs = range(max(self.applied, default=-1) + 1)
        return LedgerSummary(
            updates=self.updates,
            applied=self.applied.total(),
            dropped=self.dropped,
            refused=self.refused,
            returned=self.returned,
            applied_by_epoch=tuple(self.applied[epoch] for epoch in epochs),
            staleness={str(s): self.staleness[s] for s in sorted(self.staleness)},
        )

    @staticmethod
    def of(summary: LedgerSummary) -> Ledger:
        return Ledger(
            updates=summary.updates,
            applied=Counter(dict(enumerate(summary.applied_by_epoch))),
            dropped=summary.dropped,
            refused=summary.refused,
            returned=summary.returned,
            staleness=Counter({int(s): n for s, n in summary.staleness.items()}),
        )
