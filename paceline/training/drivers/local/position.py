"""Where a run stands, read from shared memory: what a coordinator is rebuilt from, and what a checkpoint holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from paceline.errors import CheckpointError
from paceline.record import from_json, to_json
from paceline.strategy.coordinator import Position
from paceline.strategy.ledger import LedgerSummary
from paceline.training.drivers.local import batch_status
from paceline.training.drivers.local.fields import LINE, SLOT_WORDS, ControlField, GroupField, SlotField
from paceline.training.drivers.local.shared_memory import STALENESS_BINS, SharedMemory


def ledger_of(memory: SharedMemory, version: int) -> LedgerSummary:
    groups = memory.sizes.groups
    done = memory.control[ControlField.EPOCHS_DONE]
    by_epoch = [tuple(row) for row in memory.totals[:done].tolist()]
    later = [epoch for epoch in batch_status.begun(memory.batch_status, version) if epoch >= done]
    epochs = range(done, max(later, default=done - 1) + 1)
    by_epoch += [batch_status.counts(memory.batch_status, epoch, version) for epoch in epochs]
    histogram = memory.headers[version % 2, 2 * groups : 2 * groups + STALENESS_BINS]
    return LedgerSummary(
        updates=version,
        applied=sum(a for a, _, _ in by_epoch),
        dropped=sum(d for _, d, _ in by_epoch),
        refused=sum(r for _, _, r in by_epoch),
        returned=memory.control[ControlField.RETURNED],
        applied_by_epoch=tuple(a for a, _, _ in by_epoch),
        staleness={str(s): int(histogram[s]) for s in np.flatnonzero(histogram).tolist()},
    )


def position_of(memory: SharedMemory) -> Position:
    """As of the version that is committed. Tasks that were given out count as not done."""
    version, workers = memory.control[ControlField.VERSION], memory.sizes.workers
    done = memory.control[ControlField.EPOCHS_DONE]
    begun = range(done, max(batch_status.begun(memory.batch_status, version), default=-1) + 1)
    closed = {
        str(epoch): tuple(np.flatnonzero(batch_status.closed(memory.batch_status, epoch, version)).tolist())
        for epoch in begun
    }
    return Position(
        version=version,
        opened=max(begun, default=done - 1) + 1,
        done=closed,
        sequences={str(w): memory.slots[w * SLOT_WORDS + SlotField.GIVEN] for w in range(workers)},
        clocks={str(group): _rounds(memory, group, version) for group in range(memory.sizes.groups)},
        ledger=ledger_of(memory, version),
    )


def _rounds(memory: SharedMemory, group: int, version: int) -> int:
    """The number of a group's next round. Workers that commit wait for each number in turn."""
    words = memory.groups[group * LINE : (group + 1) * LINE]
    if memory.sizes.workers_commit and words[GroupField.PLANNED]:
        return words[GroupField.ROUND]
    return max(words[GroupField.PLANNED], int(memory.headers[version % 2, group]))


def put_position(memory: SharedMemory, position: Position) -> None:
    """The reverse, into new memory: a server that starts finds the run as it was."""
    control, version, groups = memory.control, position.version, memory.sizes.groups
    done = min(map(int, position.done), default=position.opened)
    _put_batches(memory, position, done)
    header = memory.headers[version % 2]
    for staleness, count in position.ledger.staleness.items():
        header[2 * groups + int(staleness)] = count
    for group, clock in position.clocks.items():
        header[int(group)] = clock
        memory.groups[int(group) * LINE + GroupField.ROUND] = clock
        memory.groups[int(group) * LINE + GroupField.PLANNED] = clock
    for worker, sequence in position.sequences.items():
        memory.slots[int(worker) * SLOT_WORDS + SlotField.GIVEN] = sequence
    control[ControlField.EPOCHS_DONE] = control[ControlField.EPOCHS_TAKEN] = control[ControlField.EPOCH_KEPT] = done
    control[ControlField.RETURNED] = position.ledger.returned
    control[ControlField.WRITING] = control[ControlField.VERSION] = version


def _put_batches(memory: SharedMemory, position: Position, done: int) -> None:
    """The batches' status by epoch. Which of an epoch's were dropped or refused is not kept, only how many."""
    ledger, applied = position.ledger, position.ledger.applied_by_epoch
    dropped, refused = ledger.dropped, ledger.refused
    for epoch in range(position.opened):
        batches = position.done.get(str(epoch), tuple(range(memory.sizes.batches)))
        a = applied[epoch] if epoch < len(applied) else 0
        d = min(dropped, len(batches) - a)
        r = min(refused, len(batches) - a - d)
        dropped, refused = dropped - d, refused - r
        if epoch < done:
            memory.totals[epoch] = a, d, r
            continue
        for kind, part in (
            (batch_status.APPLIED, batches[: len(batches) - d - r]),
            (batch_status.DROPPED, batches[len(batches) - d - r : len(batches) - r]),
            (batch_status.REFUSED, batches[len(batches) - r :]),
        ):
            batch_status.mark(memory, epoch, part, kind, position.version)


def saved_state(memory: SharedMemory) -> dict[str, Any]:
    """For a checkpoint, from the holder of the writer lock: plain positions and tensors of one version."""
    version, groups = memory.control[ControlField.VERSION], memory.sizes.groups
    current = memory.headers[version % 2, groups : 2 * groups].tolist()
    return {
        "state": {name: tensor.clone() for name, tensor in memory.states[version % 2].items()},
        "corrections": [
            {name: tensor.clone() for name, tensor in kept[current[group]].items()}
            for group, kept in enumerate(memory.corrections)
        ],
        "position": to_json(position_of(memory)),
        "update_ns": memory.control[ControlField.UPDATE_NS],
        "refusals": memory.control[ControlField.REFUSALS],
    }


def put_state(memory: SharedMemory, saved: dict[str, Any], parameters: Tensor) -> None:
    """The reverse, into new memory."""
    position: Position = from_json(Position, saved["position"], "position")
    if position.opened > memory.sizes.epochs:
        raise CheckpointError(f"the run is in epoch {position.opened} already: `epochs={memory.sizes.epochs}` is less")
    now = position.version % 2
    memory.parameters[now].copy_(parameters)
    if saved["state"].keys() != memory.states[now].keys():
        raise KeyError("the server's optimizer is another one")
    for name, tensor in memory.states[now].items():
        tensor.copy_(saved["state"][name])
    for kept, was in zip(memory.corrections, saved["corrections"], strict=True):
        for name, tensor in kept[0].items():
            tensor.copy_(was[name])
    put_position(memory, position)
    memory.control[ControlField.UPDATE_NS] = saved["update_ns"]
    memory.control[ControlField.REFUSALS] = int(saved["refusals"])
