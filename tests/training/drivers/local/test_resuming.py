"""A distributed run is resumed from its checkpoint as it was; what does not fit is refused on one line."""

from __future__ import annotations

import threading

import pytest
import torch

from paceline.errors import CheckpointError, PacelineError
from paceline.record import load
from paceline.strategy.presets import find_strategy
from paceline.training import trainer
from paceline.training.checkpoint import load_checkpoint
from paceline.training.drivers.local import launcher
from paceline.training.watcher import Silent
from tests.training.drivers.local.small import BATCHES, SAMPLES, assert_nothing_is_left, own, parameters, workload


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("run") / "saved"
    launcher.run(own("sound", epochs=1), "sync", workers=2, out=place)
    return place


def copied(saved, tmp_path, **changes):
    """The run once more, with some of its checkpoint changed."""
    place = tmp_path / "copy"
    place.mkdir()
    for file in saved.iterdir():
        if file.is_file():
            (place / file.name).write_bytes(file.read_bytes())
    content = torch.load(place / "checkpoint.pt", weights_only=True)
    torch.save({**content, **changes}, place / "checkpoint.pt")
    return place


@pytest.mark.parametrize("strategy", ["sync", "local-sgd"])
def test_a_resumed_synchronous_run_ends_with_the_same_parameters(tmp_path, strategy):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    found = find_strategy(strategy)
    launcher.run(workload(epochs=3, optimizer="momentum", lr=0.05), found, workers=2, out=whole)
    launcher.run(workload(epochs=1, optimizer="momentum", lr=0.05), found, workers=2, out=parts)
    launcher.resume(parts, changes={"epochs": 3})
    if strategy == "sync":
        assert torch.equal(parameters(whole), parameters(parts))
    assert load(parts).distribution.ledger == load(whole).distribution.ledger


def test_the_state_of_correction_and_optimizer_is_resumed_too(tmp_path):
    place = tmp_path / "run"
    launcher.run(workload(epochs=2, optimizer="adam", lr=0.01), "delay-compensated", workers=2, out=place)
    before = load_checkpoint(place).optimizer
    assert all(float(of_group["squares"].sum()) > 0 for of_group in before["corrections"])
    run = launcher.resume(place, changes={"epochs": 3})
    assert run.distribution.strategy == find_strategy("delay-compensated")
    after = load_checkpoint(place).optimizer
    steps = [name for name, tensor in after["state"].items() if not tensor.dim()]
    assert steps and all(after["state"][n] == 1.5 * before["state"][n] for n in steps), "counted from the beginning"


def test_the_ledger_counts_from_the_run_s_beginning(tmp_path):
    """What workers lost and got right is what the epochs have, over all of them."""
    launcher.run(workload(epochs=2), "downpour", workers=2, out=tmp_path / "run")
    run = launcher.resume(tmp_path / "run", changes={"epochs": 3})
    d = run.distribution
    assert d.ledger.applied_by_epoch == (BATCHES,) * 3
    assert sum(d.ledger.staleness.values()) == d.ledger.updates == run.updates == 3 * BATCHES
    assert sum(worker.samples for worker in d.by_worker) == 3 * SAMPLES
    lost = sum(worker.loss * worker.samples for worker in d.by_worker)
    assert lost == pytest.approx(sum(epoch.loss * SAMPLES for epoch in run.epochs))
    right = sum(worker.accuracy * worker.samples for worker in d.by_worker)
    assert right == pytest.approx(sum(epoch.train_accuracy * SAMPLES for epoch in run.epochs))
    assert [worker.starts for worker in d.by_worker] == [2, 2]
    assert [point.epoch for point in run.points] == [1, 2, 3]


def test_refusals_are_still_counted(tmp_path):
    from paceline.testing import Fault

    options = {"workers": 2, "on_bad_gradient": "skip"}
    launcher.run(workload(epochs=1), "downpour", out=tmp_path / "run", faults=(Fault("corrupt", 3, 1),), **options)
    run = launcher.resume(tmp_path / "run", changes={"epochs": 2}, on_bad_gradient="skip")
    ledger = run.distribution.ledger
    assert (ledger.applied_by_epoch, ledger.refused, ledger.dropped) == ((BATCHES - 1, BATCHES), 1, 0)


def test_a_run_in_one_process_is_not_for_this_driver(tmp_path):
    trainer.run(workload(epochs=1), out=tmp_path / "alone")
    with pytest.raises(CheckpointError, match="belongs to a run in one process"):
        launcher.resume(tmp_path / "alone")


def test_a_checkpoint_of_an_unknown_schema_is_refused_on_one_line(saved, tmp_path):
    with pytest.raises(CheckpointError, match=r"has schema 99, this version reads \d+") as caught:
        launcher.resume(copied(saved, tmp_path, schema=99))
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_another_network_is_refused_on_one_line(saved, tmp_path):
    content = torch.load(saved / "checkpoint.pt", weights_only=True)
    other = {name: torch.zeros(3, 3) for name in content["parameters"]}
    with pytest.raises(CheckpointError, match=r"belongs to another network: .* is \(3, 3\), not") as caught:
        launcher.resume(copied(saved, tmp_path, parameters=other), changes={"epochs": 2})
    assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError, match="belongs to another network: its network is"):
        launcher.resume(saved, changes={"network": "dnn", "epochs": 2})
    del caught
    assert_nothing_is_left()


@pytest.mark.parametrize("what", ["position", "strategy", "state", "corrections"])
def test_a_checkpoint_without_what_continuing_needs_is_refused_on_one_line(saved, tmp_path, what):
    content = torch.load(saved / "checkpoint.pt", weights_only=True)
    optimizer = {name: value for name, value in content["optimizer"].items() if name != what}
    with pytest.raises(CheckpointError, match=r"does not fit this run|does not belong to a distributed run") as caught:
        launcher.resume(copied(saved, tmp_path, optimizer=optimizer), changes={"epochs": 2})
    assert "\n" not in str(caught.value)


def test_fewer_epochs_than_were_begun_are_refused_on_one_line(tmp_path):
    """Two epochs may be open at a time."""
    place = tmp_path / "run"
    launcher.run(workload(epochs=2), "downpour", workers=2, out=place)
    content = torch.load(place / "checkpoint.pt", weights_only=True)
    position = {**content["optimizer"]["position"], "opened": 2, "done": {"1": [0, 1]}}
    changed = copied(place, tmp_path, epoch=1, optimizer={**content["optimizer"], "position": position})
    with pytest.raises(CheckpointError, match="has already reached epoch 2, and `epochs=1` is lower"):
        launcher.resume(changed, changes={"epochs": 1})


class Waiting(Silent):
    """The one that resumes waits until the other was refused."""

    def __init__(self) -> None:
        self.running, self.go_on = threading.Event(), threading.Event()

    def begun(self, *_: object) -> None:
        self.running.set()
        self.go_on.wait(30)


def test_of_two_simultaneous_resumes_one_wins(saved, tmp_path):
    place = copied(saved, tmp_path)
    watcher, refused = Waiting(), []

    def second() -> None:
        watcher.running.wait(30)
        try:
            launcher.resume(place, changes={"epochs": 2})
        except PacelineError as error:
            refused.append(str(error))
        finally:
            watcher.go_on.set()

    other = threading.Thread(target=second)
    other.start()
    run = launcher.resume(place, changes={"epochs": 2}, watcher=watcher)
    other.join(30)
    assert run.status == "finished" and len(run.epochs) == 2
    assert len(refused) == 1 and "\n" not in refused[0]
