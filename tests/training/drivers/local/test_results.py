"""What the local driver computes: the same as one process where it must, and a whole record of it."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from paceline.record import dump, load
from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution
from paceline.strategy.presets import find_strategy
from paceline.testing import FakeClock, Fault
from paceline.training import trainer
from paceline.training.drivers.local import launcher
from paceline.training.drivers.local.child import Bells
from paceline.training.drivers.local.fields import ControlField, SlotField
from paceline.training.drivers.local.preparation import sizes_of
from paceline.training.drivers.local.progress import LocalProgress
from paceline.training.drivers.local.shared_memory import SharedMemory
from paceline.training.drivers.local.supervisor import Supervisor
from paceline.training.evaluate import Evaluator, evaluate
from paceline.training.settings import DriverSettings
from tests.strategy.flat_vectors import layout
from tests.training.drivers.local.small import BATCHES, SAMPLES, assert_nothing_is_left, own, parameters, workload


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory):
    """One asynchronous run, looked at by several tests."""
    place = tmp_path_factory.mktemp("run") / "downpour"
    run = launcher.run(workload(epochs=12, **{"options.hidden": [64]}), "downpour", workers=2, out=place)
    return run, place


def test_synchronous_workers_equal_one_process_with_the_joined_batch(tmp_path):
    together = launcher.run(workload(batch=32, epochs=3), "sync", workers=2, out=tmp_path / "sync")
    alone = trainer.run(workload(batch=64, epochs=3), out=tmp_path / "alone")
    a, b = (parameters(tmp_path / name) for name in ("sync", "alone"))
    assert together.updates == alone.updates == 3 * BATCHES
    assert (a - b).norm() <= 1e-5 * b.norm()
    assert together.test_accuracy == pytest.approx(alone.test_accuracy, abs=0.003)


def test_an_asynchronous_run_learns_and_leaves_nothing_behind(asynchronous):
    run, _ = asynchronous
    assert run.status == "finished"
    assert run.test_accuracy > 0.85
    assert [epoch.epoch for epoch in run.epochs] == list(range(1, 13))
    assert run.epochs[-1].loss < run.epochs[0].loss
    assert run.epochs[-1].train_accuracy > 0.85
    assert_nothing_is_left()


def test_every_batch_is_in_the_ledger_once(asynchronous):
    ledger = asynchronous[0].distribution.ledger
    assert ledger.applied_by_epoch == (BATCHES,) * 12
    assert (ledger.dropped, ledger.refused, ledger.returned) == (0, 0, 0)
    assert sum(ledger.staleness.values()) == ledger.updates == asynchronous[0].updates == 12 * BATCHES


def test_the_record_says_what_each_worker_did(asynchronous):
    run, place = asynchronous
    d = run.distribution
    assert (d.driver, d.workers, d.strategy) == ("local", 2, find_strategy("downpour"))
    assert sum(worker.batches for worker in d.by_worker) == d.steps == 12 * BATCHES
    assert sum(worker.samples for worker in d.by_worker) == 12 * SAMPLES
    assert all(0 < worker.accuracy <= 1 and worker.starts == 1 for worker in d.by_worker)
    assert 0 < d.server_s < d.seconds
    assert d.faults == ()
    assert dump(load(place)) == dump(run)


def test_the_checkpoint_holds_what_was_validated(asynchronous):
    run, place = asynchronous
    assert evaluate(place, {}).accuracy == run.test_accuracy


def test_batch_norm_and_a_custom_network(tmp_path):
    made = own("with_batch_norm", epochs=8)
    run = launcher.run(made, find_strategy("mixed", groups=2), workers=2, out=tmp_path / "run")
    assert parameters(tmp_path / "run").isfinite().all()
    assert run.test_accuracy > 0.8


def test_a_custom_correction_runs_in_the_server():
    run = launcher.run(workload(epochs=2), find_strategy("delay-compensated", correction=f"{__name__}:nothing"))
    assert run.distribution.commits == f"the server: correction {__name__}:nothing is the user's own"
    assert run.updates == 2 * BATCHES
    assert run.epochs[0].test_loss == run.epochs[1].test_loss, "nothing was to be learned"


def nothing(gradient, late):
    return torch.zeros_like(gradient)


# Validation points


@pytest.mark.parametrize(
    ("every", "epochs"), [("1epoch", [1, 2, 3, 4]), ("2epochs", [2, 4]), ("3epochs", [3, 4])]
)  # the last epoch always is
def test_validations_after_epochs(every, epochs):
    run = launcher.run(workload(epochs=4), "sync", workers=2, validate_every=every)
    points = run.points
    assert [point.epoch for point in points] == epochs
    assert [point.updates for point in points][-1] == run.updates
    assert [e.epoch for e in run.epochs if e.test_loss == e.test_loss] == epochs, "others have no test loss"
    assert points[-1].test_loss == run.test_loss and points[-1].test_loss < 2.2


@pytest.mark.parametrize(("every", "least"), [("20updates", 3), ("0.1s", 2)])
def test_validations_between_the_ends_of_epochs(every, least):
    slow = tuple(Fault("slow", worker=worker, seconds=0.04) for worker in range(2))
    run = launcher.run(workload(epochs=4), "downpour", workers=2, validate_every=every, faults=slow)
    points = [point for point in run.points if point.train_loss != point.train_loss]
    assert len(points) >= least
    assert all(0 < point.epoch <= 4 and 0 < point.test_loss < 3 for point in points)
    assert [point.seconds for point in points] == sorted(point.seconds for point in points)
    if every == "20updates":
        apart = [later.updates - earlier.updates for earlier, later in pairwise(points)]
        assert points[0].updates >= 20 and all(10 < distance < 40 for distance in apart)


def test_validations_that_take_longer_than_their_interval_do_not_pile_up(monkeypatch):
    score = Evaluator.score

    def slow_score(self: Evaluator) -> Score:
        time.sleep(0.2)
        return score(self)

    monkeypatch.setattr(Evaluator, "score", slow_score)
    slow = tuple(Fault("slow", worker=worker, seconds=0.02) for worker in range(2))
    run = launcher.run(workload(epochs=1), "downpour", workers=2, validate_every="1updates", faults=slow)
    between = [point for point in run.points if point.epoch < 1]
    assert 1 <= len(between) <= 1 + run.train_s / 0.2


# What the launcher makes of the words


@pytest.fixture
def memory():
    where = layout(5, epochs=9)
    made = SharedMemory(sizes_of(find_strategy("downpour"), where, 2, record_events=False, workers_commit=True))
    yield made
    made.close()


@pytest.fixture
def supervisor(memory):
    bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(4)]
    settings = SimpleNamespace(workers=2, collective="shared", strategy=find_strategy("downpour"))
    yield Supervisor(memory, settings, Bells(bells[0], bells[1], tuple(bells[2:])), ["cpu"] * 2, DriverSettings(), ())
    for bell in bells:
        os.close(bell)


@pytest.fixture
def clock():
    return FakeClock(500.0)


@pytest.fixture
def progress(memory, supervisor, clock):
    described = Distribution(find_strategy("downpour"), 2, "local")
    made = LocalProgress(memory, supervisor, workload(epochs=9), described, 1000, clock)
    made.begin(clock(), 0)
    return made


def test_epochs_that_are_seen_to_end_together_share_the_time_they_took(progress, memory, clock):
    clock.sleep(10.0)
    memory.control[ControlField.EPOCHS_DONE] = 2
    progress.update()
    clock.sleep(3.0)
    memory.control[ControlField.EPOCHS_DONE] = 3
    progress.update()
    found = [progress.epoch(epoch, Score()) for epoch in range(3)]
    assert [epoch.wall_s for epoch in found] == [5.0, 5.0, 3.0]
    assert [epoch.samples_per_s for epoch in found] == pytest.approx([200.0, 200.0, 1000 / 3])


def end_epoch(progress, memory, clock, epoch: int, *samples: int) -> None:
    """An epoch of 1000 samples is over, and the workers have reported the losses of `samples`."""
    clock.sleep(10.0)
    memory.control[ControlField.EPOCHS_DONE] = epoch + 1
    for rows, count in zip(memory.scores, samples, strict=True):
        rows[epoch, 2] = count
    progress.update()


def test_the_loss_of_an_epoch_is_of_all_its_samples_however_late_a_worker_reports_them(progress, memory, clock):
    end_epoch(progress, memory, clock, 0, 600, 0)
    clock.sleep(20.0)
    assert not progress.is_scored(0)
    memory.scores[1][0, 2] = 400
    assert progress.is_scored(0) and progress.epoch(0, Score()).unscored == 0


def test_losses_that_died_with_a_worker_are_not_waited_for_but_counted(progress, memory, supervisor, clock):
    supervisor.note("died", 1, "was killed")
    end_epoch(progress, memory, clock, 0, 600, 300)
    assert not progress.is_scored(0)
    clock.sleep(1.1)
    assert progress.is_scored(0) and progress.epoch(0, Score()).unscored == 100


def test_later_epochs_wait_for_the_losses_of_all_workers_again(progress, memory, supervisor, clock):
    """An epoch opens when the one before the last has ended, so two more may have lost something."""
    end_epoch(progress, memory, clock, 0, 600, 400)
    supervisor.note("died", 1, "was killed")
    for epoch in (1, 2):
        end_epoch(progress, memory, clock, epoch, 600, 300)
        clock.sleep(1.1)
        assert progress.is_scored(epoch) and progress.epoch(epoch, Score()).unscored == 100
    end_epoch(progress, memory, clock, 3, 600, 300)
    clock.sleep(1.1)
    assert not progress.is_scored(3)


def test_a_worker_does_not_compute_while_it_is_dead(progress, supervisor, memory, clock):
    """Two incarnations, of 4 s and of 3 s, with 5 s in between; it waits for 1 s and communicates for 2 s."""
    supervisor.workers[0].since_s = 499.0
    supervisor.workers[1].alive_s.append((500.0, 504.0))
    supervisor.workers[1].since_s = 509.0
    slot = memory.slot(1)
    slot[SlotField.WAITING_NS], slot[SlotField.COMMUNICATION_NS] = 1_000_000_000, 2_000_000_000
    clock.sleep(12.0)
    first, second = progress.distribution().by_worker
    assert (first.computing_s, second.computing_s) == (12.0, 4.0)


def test_the_parts_of_a_worker_s_time_are_the_run_s():
    slow = tuple(Fault("slow", worker=worker, seconds=0.02) for worker in range(2))
    d = launcher.run(workload(epochs=4), "downpour", workers=2, faults=slow).distribution
    for worker in d.by_worker:
        assert worker.computing_s + worker.communicating_s + worker.waiting_s == pytest.approx(d.seconds, abs=0.2)
