"""Where a run stands, read from shared memory: what the coordinator is rebuilt from, and what a checkpoint holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.strategy.coordinator import Position
from paceline.strategy.ledger import LedgerSummary
from paceline.train.local import marks
from paceline.train.local.memory import STALENESS_BINS, Memory
from paceline.train.local.words import SLOT_WORDS, Control, Of


def open_epochs(rows: npt.NDArray[Any], epochs_done: int, version: int) -> dict[int, tuple[int, ...]]:
    """The batches that are closed of each epoch that is not done, up to the last that is begun."""
    begun = range(epochs_done, max(marks.begun(rows, version), default=-1) + 1)
    return {epoch: tuple(np.flatnonzero(marks.closed(rows, epoch, version)).tolist()) for epoch in begun}


def ledger_of(memory: Memory, version: int) -> LedgerSummary:
    groups = memory.sizes.groups
    done = memory.control[Control.EPOCHS_DONE]
    by_epoch = [tuple(row) for row in memory.totals[:done].tolist()]
    later = [epoch for epoch in marks.begun(memory.marks, version) if epoch >= done]
    epochs = range(done, max(later, default=done - 1) + 1)
    by_epoch += [marks.counts(memory.marks, epoch, version) for epoch in epochs]
    histogram = memory.headers[version % 2, 2 * groups : 2 * groups + STALENESS_BINS]
    return LedgerSummary(
        updates=version,
        applied=sum(a for a, _, _ in by_epoch),
        dropped=sum(d for _, d, _ in by_epoch),
        refused=sum(r for _, _, r in by_epoch),
        returned=memory.control[Control.RETURNED],
        applied_by_epoch=tuple(a for a, _, _ in by_epoch),
        staleness={str(s): int(histogram[s]) for s in np.flatnonzero(histogram).tolist()},
    )


def position_of(memory: Memory) -> Position:
    """As of the version that is published. Tasks that were given out count as not done."""
    version, workers = memory.control[Control.VERSION], memory.sizes.workers
    done = memory.control[Control.EPOCHS_DONE]
    still_open = open_epochs(memory.marks, done, version)
    clocks = memory.headers[version % 2, : memory.sizes.groups].tolist()
    given = {str(w): memory.slots[w * SLOT_WORDS + Of.GIVEN] for w in range(workers)}
    return Position(
        version=version,
        opened=max(still_open, default=done - 1) + 1,
        done={str(epoch): batches for epoch, batches in still_open.items()},
        sequences=given,
        clocks={str(group): clock for group, clock in enumerate(clocks)},
        ledger=ledger_of(memory, version),
    )
