"""Decisions of the launcher before any process starts: who commits updates, and the sizes of shared memory."""

from __future__ import annotations

from paceline.errors import WorkloadError
from paceline.strategy.layout import Layout
from paceline.strategy.strategy import Strategy
from paceline.strategy.updater import Updater
from paceline.training.drivers.local.shared_memory import Sizes, StateTensor

MOST_COMMITTED = 1 << 20
"""Numbers up to which a worker's own update takes less time than it takes to wake the server."""
FEWEST_PLACES, MOST_PLACES, PLACES_BYTES = 4, 32, 32 << 20
"""Places for payloads of each worker that commits, and for those of all. A worker writes a snapshot each time it has
used all of its places; with more than these, the machine's last cache would not have them."""
MOST_AHEAD, SUPPLIES_PER_EPOCH = 32, 8


def why_server_commits(strategy: Strategy, updater: Updater, workers: int, device: str, collective: str) -> str:
    """Why workers do not make updates by themselves; empty: they do.

    They do where every payload, or every round of a group, is one update, and a short one: a large network's update
    takes so long that it should be made beside the next gradient.
    """
    if device != "cpu":
        return "gradients are on a GPU"
    if collective != "shared":
        return f"groups average with {collective}"
    if strategy.payloads_per_update(workers) > 1:
        return "an update waits for several payloads"
    if strategy.fragments is not None:
        return "fragments are exchanged while workers compute"
    if strategy.backup_workers:
        return "rounds continue without backup workers"
    if strategy.staleness_bound is not None:
        return "the server keeps the staleness bound"
    if strategy.warm_start:
        return "the first updates are the first worker's"
    if updater.correction is not None and not updater.correction.elementwise:
        return f"correction {strategy.correction} is the user's own"
    if updater.correction is not None and updater.correction.server_state:
        return f"correction {strategy.correction} keeps vectors at the server"
    if not all(optimizer.elementwise for optimizer in updater.optimizers):
        return f"server optimizer {strategy.server_optimizer} is not one of ours"
    if updater.layout.size > MOST_COMMITTED:
        return f"{updater.layout.size:,} parameters are updated beside the next gradient"
    return ""


def sizes_of(strategy: Strategy, layout: Layout, workers: int, *, record_events: bool, workers_commit: bool) -> Sizes:
    updater = Updater(strategy, layout, workers)
    groups = workers if strategy.groups is None else strategy.groups
    batches = updater.turns.steps
    supply = batches // strategy.push_every // (SUPPLIES_PER_EPOCH * workers)
    alone = strategy.groups is None
    places = 2
    if workers_commit:
        places = min(max(PLACES_BYTES // (workers * layout.size_bytes), FEWEST_PLACES), MOST_PLACES)
    own_copy = workers_commit and strategy.one_batch_per_task
    return Sizes(
        workers=workers,
        groups=groups,
        numbers=layout.size,
        payload=updater.encoded + layout.buffers,
        dtype=layout.dtype,
        state=tuple(StateTensor.of(name, tensor) for name, tensor in updater.initial_state().items()),
        corrections=tuple(StateTensor.of(name, t) for name, t in updater.initial_correction_state().items()),
        batches=batches,
        epochs=layout.epochs,
        longest=min(strategy.push_every, batches),
        snapshots=strategy.groups is not None and strategy.groups > 1,
        fetched=updater.needs_fetched and alone and not own_copy,
        events=_event_words(batches * layout.epochs) if record_events else 0,
        ahead=min(max(supply, 2), MOST_AHEAD) if workers_commit else 2,
        places=places,
        workers_commit=workers_commit,
    )


def _event_words(batches: int) -> int:
    """Space for every task and update, and for some repeated ones."""
    words = batches * 40
    if words * 8 > 1 << 30:
        raise WorkloadError(f"{batches:,} batches are too many to record every event: train fewer epochs")
    return words + 4096
