"""The number of epochs to an accuracy is found by training each setup once on a subset."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from paceline.errors import InputError, PacelineError
from paceline.planning.candidates import list_candidates
from paceline.planning.learning import MAX_TRAININGS, Learning, first_samples, train_sample
from paceline.planning.machine_options import find_machine_options
from paceline.planning.objective import Objective
from paceline.planning.plan import Learned
from paceline.planning.planning import make_plan
from paceline.strategy.presets import PRESETS, find_strategy
from paceline.workload import resolve
from tests.planning.invented import WORKLOAD, InventedPredictions

SAMPLES = 60_000


class InventedTraining:
    """Needs more samples the more are in flight; stale gradients diverge beyond eight workers."""

    def __init__(self) -> None:
        self.trained: list[tuple[str, int, int]] = []

    def __call__(self, workload, strategy, workers, target):
        self.trained.append((strategy.name, workers, workload.batch))
        if strategy.groups is None and strategy.correction == "none" and workers > 8:
            return Learned(strategy.name, workers, workload.batch, "diverged", math.nan, 0.1, 1)
        in_flight = workers * workload.batch * strategy.push_every / 64
        epochs = 2 * (1 + in_flight / 16)
        if epochs > 10:
            return Learned(strategy.name, workers, workload.batch, "not reached", math.nan, 0.8, 20)
        return Learned(strategy.name, workers, workload.batch, "reached", epochs, target, 6)


def planned(training: InventedTraining, **objective):
    learning = Learning(WORKLOAD, 0.97, SAMPLES, training)
    plan = make_plan(
        WORKLOAD, "p4d.24xlarge,g5.xlarge", Objective(target_accuracy=0.97, **objective), learning=learning,
        predict=InventedPredictions(samples=SAMPLES),
    )  # fmt: skip
    return plan, learning


def test_time_is_time_to_accuracy():
    plan, _ = planned(InventedTraining(), deadline_s=3600)
    for one in plan.simulated:
        assert one.time_s == pytest.approx(one.epochs * one.epoch_s)
        assert one.epochs == pytest.approx(2 * (1 + one.in_flight / 16))
    assert plan.met and plan.pick.accuracy == 0.97
    assert any("learning rate and precision were not varied" in line for line in plan.reasons)
    assert "the first 10,000 of 60,000 training samples" in plan.conditions["learned from"]


def test_setups_that_diverge_or_miss_the_accuracy_are_excluded_with_the_reason():
    plan, learning = planned(InventedTraining())
    failed = {one.status for one in learning.results if one.status != "reached"}
    assert failed == {"diverged", "not reached"}
    for one in plan.simulated:
        assert math.isfinite(one.epochs)
    reasons = " ".join(plan.excluded)
    assert "do not reach 0.97" in reasons and "diverge" in reasons


def test_each_setup_is_trained_once_within_the_limit():
    training = InventedTraining()
    plan, learning = planned(training)
    assert len(training.trained) == len(set(training.trained)) == len(plan.learned) <= MAX_TRAININGS
    assert training.trained[0] == ("sync", 1, 64), "the workload as it is goes first"
    assert learning.results == plan.learned


def test_a_synchronous_group_is_trained_as_one_process_with_the_global_batch():
    training = InventedTraining()
    learning = Learning(WORKLOAD, 0.97, SAMPLES, training)
    candidates = list_candidates(WORKLOAD, find_machine_options("p4d.24xlarge"), SAMPLES, ("sync",)).candidates
    joined = [c for c in candidates if c.workers * c.batch == 256 and c.precision == "float32"]
    assert len(joined) > 2
    for candidate in joined:
        while not learning.known(candidate):
            learning.find(candidate)
        assert learning.why_not(candidate) == "" and learning.result(candidate).batch == 256
    assert {(name, workers) for name, workers, _ in training.trained} == {("sync", 1)}


def test_one_process_with_the_batch_is_trained_first():
    training = InventedTraining()
    learning = Learning(WORKLOAD, 0.97, SAMPLES, training)
    candidates = list_candidates(WORKLOAD, find_machine_options("p4d.24xlarge"), SAMPLES, ("downpour",)).candidates
    eight = next(c for c in candidates if (c.workers, c.batch) == (8, 256))
    sixteen = next(c for c in candidates if (c.workers, c.batch) == (16, 256))
    learning.find(eight)
    assert training.trained == [("sync", 1, 256)] and not learning.known(eight)
    learning.find(eight)
    assert training.trained[1:] == [("downpour", 8, 256)]
    assert learning.why_not(sixteen) == "" and learning.least(sixteen) == pytest.approx(0.9 * learning.least(eight))


def test_what_is_not_reached_by_the_workload_itself_is_an_error():
    def train(workload, strategy, workers, target):
        return Learned(strategy.name, workers, workload.batch, "not reached", math.nan, 0.913, 10)

    with pytest.raises(PacelineError, match=r"0.97 is not reached in 10 passes over .* \(best 0.9130\)"):
        make_plan(
            WORKLOAD, "g5.xlarge", Objective(target_accuracy=0.97), predict=InventedPredictions(samples=SAMPLES),
            learning=Learning(WORKLOAD, 0.97, SAMPLES, train),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "cut"),
    [
        ("mnist", "mnist?first=100"),
        ("mnist:5000", "mnist?first=100"),
        ("synthetic:3x8x8/10", "synthetic:3x8x8/10?first=100"),
        ("images:photos?size=96:500", "images:photos?size=96&first=100"),
    ],
)
def test_the_first_samples_of_any_data(data, cut):
    assert first_samples(data, 100) == cut


def test_training_really_reaches_an_accuracy_on_a_sample():
    workload = resolve("mlp", {"epochs": "12"})
    found = train_sample(700, 1437)(workload, PRESETS["sync"], 1, 0.85)
    assert found.status == "reached" and found.accuracy >= 0.85 and 1 <= found.passes <= 12
    assert found.epochs == pytest.approx(found.passes * 700 / 1437)


def test_training_with_several_workers_says_what_was_not_reached():
    workload = resolve("mlp", {"epochs": "1", "lr": "1e-5"})
    found = train_sample(1437, 1437)(workload, find_strategy("downpour"), 4, 0.99)
    assert found.status == "not reached" and math.isnan(found.epochs) and 0 < found.accuracy < 0.99


def test_a_training_that_diverges_is_not_an_error():
    workload = replace(resolve("mlp", {"epochs": "2"}), lr=1e30)
    assert train_sample(1437, 1437)(workload, find_strategy("downpour"), 2, 0.99).status == "diverged"


def test_targets_without_classes_have_no_accuracy(tmp_path, monkeypatch):
    (tmp_path / "numbers_only.py").write_text(
        "import torch\nfrom torch import nn\nimport paceline\n\n"
        "def data():\n    x = torch.randn(64, 4)\n    part = paceline.Arrays(x, x.sum(1, keepdim=True))\n"
        "    return paceline.Dataset('numbers', 'table', (4,), (), part, part)\n\n"
        "def network():\n    return nn.Linear(4, 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    workload = resolve("numbers_only:network", {"data": "numbers_only:data", "loss": "squared", "batch": "16"})
    with pytest.raises(InputError, match="this workload has no accuracy"):
        train_sample(64, 64)(workload, PRESETS["sync"], 1, 0.9)
