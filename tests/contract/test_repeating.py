"""The same seed gives the same run, byte for byte; and what was recorded can be computed again, bit for bit."""

from __future__ import annotations

import json

import pytest
import torch

from paceline.errors import RecordError
from paceline.record import dump, load, save, to_json
from paceline.simulation.replay import replay, replay_run
from paceline.simulation.virtual_cluster import Network, VirtualCluster
from paceline.strategy.presets import PRESETS, find_strategy
from tests.contract.drivers import train
from tests.contract.small_training import GAMMA, parts, trained, workload
from tests.contract.test_conservation import strategy

DYING = VirtualCluster(
    compute=GAMMA.compute, server=GAMMA.compute.__class__("constant", (0.01,)),
    network=Network(0.02, 1e6), mean_life_s=15.0, restart_s=2.0,
)  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_the_same_seed_gives_the_same_bytes_and_what_was_recorded_replays_bitwise(name, tmp_path):
    """On machines that die and messages that take long; on others, every driver's run is replayed in its own test."""
    made = {"dropout": 0.2, "epochs": 2}
    runs = [trained(strategy(name), 4, DYING, record=True, **made) for _ in range(2)]
    texts = [json.dumps([to_json(r.distribution), to_json(r.trace), to_json(r.events)]) for r in runs]
    assert texts[0] == texts[1]
    assert runs[0].parameters.numpy().tobytes() == runs[1].parameters.numpy().tobytes()
    save(runs[0].events, tmp_path / "events.json")
    events = load(tmp_path / "events.json")
    assert events == runs[0].events
    assert torch.equal(replay(parts(**made), events), runs[0].parameters)


def test_another_seed_does_not():
    a, b = (trained(find_strategy("downpour"), 4, seed=seed) for seed in (0, 1))
    assert a.distribution.seconds != b.distribution.seconds
    assert not torch.equal(a.parameters, b.parameters)


def test_a_payload_keeps_what_it_was_computed_on_though_an_earlier_task_fetched_it(tmp_path):
    strategy = find_strategy("delay-compensated", fetch_every=3)
    found = train("local", workload(), strategy, 2, tmp_path / "run", record_events=True)
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)


@pytest.mark.parametrize("optimizer", ["nadam", "adam"])
def test_an_optimizer_whose_state_does_not_begin_with_zeros_replays_too(optimizer, tmp_path):
    made = workload(optimizer=optimizer, lr=0.001)
    found = train("local", made, find_strategy("downpour"), 2, tmp_path / "run", record_events=True)
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)


def test_a_run_without_events_cannot_be_replayed(tmp_path):
    train("virtual", workload(), find_strategy("downpour"), 2, tmp_path / "run")
    with pytest.raises(RecordError, match="`record_events=True`"):
        replay_run(tmp_path / "run")


def test_batch_norm_is_replayed_too():
    made = {"network": f"{__name__}:with_batch_norm", "dropout": None, "options": {}}
    found = trained(find_strategy("mixed", groups=2), 4, record=True, **made)
    assert len(found.parameters) == sum(p.numel() for p in with_batch_norm().parameters()) + 32
    assert found.parameters[-16:].std() > 0, "the running variance should have moved"
    assert torch.equal(replay(parts(**made), found.events), found.parameters)


def with_batch_norm():
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


def test_a_time_record_is_a_record(tmp_path):
    from paceline.simulation.links import MessageSizes
    from paceline.simulation.simulation import simulate_time
    from paceline.simulation.timing import TimeRecord

    found = simulate_time(find_strategy("downpour"), 3, 5)
    made = TimeRecord.of(workload(), {}, MessageSizes(0, 0, 0), found, 0.1)
    save(made, tmp_path / "time.json")
    assert dump(load(tmp_path / "time.json")) == dump(made)
    assert dump(made)["mean_staleness"] == made.mean_staleness
