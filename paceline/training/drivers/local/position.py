"""The position of a run, read from shared memory: what a coordinator is rebuilt from and a checkpoint stores."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from paceline.errors import CheckpointError
from paceline.record import from_json, to_json
from paceline.strategy.ledger import LedgerSummary
from paceline.strategy.position import Position
from paceline.training.drivers.local import batch_status
from paceline.training.drivers.local.fields import LINE, SLOT_WORDS, ControlField, GroupField, HeaderField, SlotField
from paceline.training.drivers.local.shared_memory import STALENESS_BINS, SharedMemory


def ledger_of(memory: SharedMemory) -> LedgerSummary:
    header, first = memory.header, memory.sizes.staleness_word
    done = memory.control[ControlField.EPOCHS_DONE]
    by_epoch = [tuple(row) for row in memory.totals[:done].tolist()]
    later = [epoch for epoch in batch_status.begun(memory) if epoch >= done]
    epochs = range(done, max(later, default=done - 1) + 1)
    by_epoch += [batch_status.counts(memory, epoch) for epoch in epochs]
    histogram = np.asarray(header[first : first + STALENESS_BINS])
    return LedgerSummary(
        updates=memory.version,
        applied=sum(a for a, _, _ in by_epoch),
        dropped=sum(d for _, d, _ in by_epoch),
        refused=sum(r for _, _, r in by_epoch),
        returned=memory.control[ControlField.RETURNED],
        applied_by_epoch=tuple(a for a, _, _ in by_epoch),
        staleness={str(s): int(histogram[s]) for s in np.flatnonzero(histogram).tolist()},
    )


def position_of(memory: SharedMemory) -> Position:
    """The position as of the committed version. Tasks that are assigned but not finished count as not done."""
    workers, done = memory.sizes.workers, memory.control[ControlField.EPOCHS_DONE]
    begun = range(done, max(batch_status.begun(memory), default=-1) + 1)
    closed = {str(epoch): tuple(np.flatnonzero(batch_status.closed(memory, epoch)).tolist()) for epoch in begun}
    return Position(
        version=memory.version,
        opened=max(begun, default=done - 1) + 1,
        done=closed,
        sequences={str(w): memory.slots[w * SLOT_WORDS + SlotField.GIVEN] for w in range(workers)},
        clocks={str(group): _rounds(memory, group) for group in range(memory.sizes.groups)},
        ledger=ledger_of(memory),
    )


def _rounds(memory: SharedMemory, group: int) -> int:
    """The number of a group's next round. Workers that commit wait for each number in turn."""
    rounds: int = memory.header[HeaderField.ROUNDS + group]
    return rounds if memory.sizes.workers_commit else max(memory.groups[group * LINE + GroupField.PLANNED], rounds)


def put_position(memory: SharedMemory, position: Position) -> None:
    """Writes a position to new shared memory, so that a server continues the run from there."""
    control, header = memory.control, memory.header
    done = min(map(int, position.done), default=position.opened)
    _put_batches(memory, position, done)
    for staleness, count in position.ledger.staleness.items():
        header[memory.sizes.staleness_word + min(int(staleness), STALENESS_BINS - 1)] += count
    for group, clock in position.clocks.items():
        header[HeaderField.ROUNDS + int(group)] = clock
        memory.groups[int(group) * LINE + GroupField.PLANNED] = clock
    for worker, sequence in position.sequences.items():
        memory.slots[int(worker) * SLOT_WORDS + SlotField.GIVEN] = sequence
    control[ControlField.EPOCHS_DONE] = control[ControlField.EPOCHS_TAKEN] = control[ControlField.EPOCH_KEPT] = done
    control[ControlField.RETURNED] = position.ledger.returned
    header[HeaderField.VERSION] = header[HeaderField.SNAPSHOT_VERSION] = position.version


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
            batch_status.mark(memory, epoch, part, kind, memory.published)


def saved_state(memory: SharedMemory, state: dict[str, Tensor]) -> dict[str, Any]:
    """For a checkpoint, from the holder of the writer lock: plain positions and tensors of one version.

    `state` is the optimizer's of that version.
    """
    first = memory.sizes.correction_word
    current = memory.header[first : first + memory.sizes.groups].tolist()
    return {
        "state": {name: tensor.clone() for name, tensor in state.items()},
        "corrections": [
            {name: tensor.clone() for name, tensor in kept[current[group]].items()}
            for group, kept in enumerate(memory.corrections)
        ],
        "position": to_json(position_of(memory)),
        "update_ns": memory.control[ControlField.UPDATE_NS],
        "refusals": memory.control[ControlField.REFUSALS],
    }


def put_state(memory: SharedMemory, saved: dict[str, Any], parameters: Tensor) -> None:
    """Writes a saved state to new shared memory."""
    position: Position = from_json(Position, saved["position"], "position")
    if position.opened > memory.sizes.epochs:
        reached, asked = position.opened, memory.sizes.epochs
        raise CheckpointError(f"the run has already reached epoch {reached}, and `epochs={asked}` is lower")
    memory.parameters[0].copy_(parameters)
    if saved["state"].keys() != memory.states[0].keys():
        raise KeyError("the server's optimizer is a different one")
    for name, tensor in memory.states[0].items():
        tensor.copy_(saved["state"][name])
    for kept, was in zip(memory.corrections, saved["corrections"], strict=True):
        for name, tensor in kept[0].items():
            tensor.copy_(was[name])
    put_position(memory, position)
    memory.control[ControlField.UPDATE_NS] = saved["update_ns"]
    memory.control[ControlField.REFUSALS] = int(saved["refusals"])
