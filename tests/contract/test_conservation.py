"""Whatever the strategy: every batch is applied once an epoch, except what it drops, and the ledger says so.

What was recorded of the same runs can be computed again, bit for bit.
"""

from __future__ import annotations

import pytest
import torch

from paceline.simulation.replay import replay_run
from paceline.strategy.presets import PRESETS, find_strategy
from paceline.testing import Fault
from tests.contract.drivers import ALL_DRIVERS, train
from tests.contract.small_training import start, trained, workload

WORKERS, EPOCHS = 4, 2
BATCHES = -(-1437 // 8)


def strategy(name: str):
    """A published one, with more than a few exchanges in an epoch."""
    found = find_strategy(name)
    fetch_every, push_every = min(found.fetch_every, 5), min(found.push_every, 5)
    return found.with_changes(fetch_every=fetch_every, push_every=push_every)


@pytest.mark.parametrize("driver", ALL_DRIVERS)
@pytest.mark.parametrize("name", PRESETS)
def test_batches_are_conserved_and_the_run_is_repeated_bitwise(driver, name, tmp_path):
    made = workload(epochs=EPOCHS, dropout=0.2)
    found = train(driver, made, strategy(name), WORKERS, tmp_path / "run", record_events=True)
    ledger = found.distribution.ledger
    assert ledger.applied + ledger.dropped == EPOCHS * BATCHES
    assert ledger.refused == ledger.returned == 0
    assert (ledger.dropped > 0) <= (name == "backup")
    if name != "backup":
        assert ledger.applied_by_epoch == (BATCHES,) * EPOCHS
        assert sum(w.batches for w in found.distribution.by_worker) == EPOCHS * BATCHES
    assert ledger.updates == found.distribution.updates > 0
    assert sum(ledger.staleness.values()) >= ledger.updates
    assert not torch.equal(found.parameters, start())
    assert found.accuracy > 0.3
    assert len(found.events.updates) == found.distribution.updates
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)


@pytest.mark.parametrize("name", PRESETS)
def test_batches_are_conserved_when_workers_die(name):
    kills = tuple(Fault("kill", at=at, worker=at % WORKERS) for at in range(0, 20, 2))
    found = trained(strategy(name), WORKERS, epochs=EPOCHS, faults=kills).distribution
    ledger = found.ledger
    assert ledger.applied + ledger.dropped == EPOCHS * BATCHES
    assert ledger.returned > 0
    assert found.fault_count >= 4
    if name != "backup":
        assert ledger.applied_by_epoch == (BATCHES,) * EPOCHS


@pytest.mark.parametrize("name", PRESETS)
def test_a_non_finite_payload_is_refused_and_named(name):
    spoilt = (Fault("corrupt", at=1, worker=2),)
    found = trained(strategy(name), WORKERS, faults=spoilt, on_bad_gradient="skip")
    ledger = found.distribution.ledger
    assert ledger.refused > 0
    assert ledger.applied + ledger.dropped + ledger.refused == BATCHES
    (fault,) = [fault for fault in found.distribution.faults if fault.what == "refused"]
    assert fault.worker == 2 and fault.step is not None and fault.note.startswith("not finite, epoch 1, batch ")
    assert torch.isfinite(found.parameters).all()


@pytest.mark.parametrize("name", ["downpour", "sync", "mixed"])
def test_with_passes_of_their_own_every_worker_sees_all_data(name):
    found = trained(find_strategy(name, full_pass_per_worker=True), WORKERS).distribution
    assert found.ledger.applied_by_epoch == (WORKERS * BATCHES,)
    assert [w.batches for w in found.by_worker] == [BATCHES] * WORKERS
    assert [w.samples for w in found.by_worker] == [1437] * WORKERS
