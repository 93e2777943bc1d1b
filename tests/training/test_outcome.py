"""A run that ends badly says so, with the likely reason; one that is merely short or mediocre does not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from paceline import data
from paceline.data.dataset import Arrays, Dataset
from paceline.strategy.distribution import Distribution
from paceline.strategy.ledger import LedgerSummary
from paceline.strategy.strategy import Strategy
from paceline.training.outcome import chance_accuracy, warnings_of
from paceline.training.run import Epoch, Run, ValidationPoint
from paceline.training.trainer import run
from paceline.workload import Workload, resolve
from tests.a_run import a_run

GUESSING = math.log(10)


def ended(
    *losses: float, accuracy: float = 0.9, updates: int = 1000, chance: float = 0.1, classes: int = 10, **changes
) -> Run:
    """A run of ten balanced classes with these training losses; the test loss is that of training."""
    epochs = tuple(
        Epoch(number, loss, accuracy, accuracy, loss, accuracy, accuracy, 1.0, 1.0)
        for number, loss in enumerate(losses, start=1)
    )
    return a_run(epochs=epochs, updates=updates, classes=classes, chance_accuracy=chance, **changes)


def stale(staleness: int, workers: int = 16) -> Distribution:
    ledger = LedgerSummary(staleness={str(staleness): 100})
    return Distribution(Strategy("downpour", groups=None), workers, "local", steps=1000, ledger=ledger)


def test_a_run_that_learned_has_no_warnings():
    assert warnings_of(ended(2.0, 0.5)) == ()
    assert warnings_of(ended(0.010, 0.013)) == (), "noise of a converged run"
    assert warnings_of(ended(2.0, 1.9, accuracy=0.2)) == (), "little, but more than chance"
    assert warnings_of(a_run()) == (), "a record from before chance levels were known"


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite(loss):
    assert warnings_of(ended(2.0, loss)) == (
        "the loss is not finite in epoch 2: the likely reason is the learning rate (0.1): lower it",
    )
    on_test = ended(2.0, 1.0, points=(ValidationPoint(1.5, 3.0, 500, test_loss=loss),))
    assert "on the test data after epoch 1.5" in warnings_of(on_test)[0]


def test_a_run_that_diverged_in_its_first_epoch():
    [warning] = warnings_of(ended(status="diverged", updates=3))
    assert warning.startswith("the loss is not finite in epoch 1: the likely reason is the learning rate")


def test_a_loss_that_rose_past_its_start():
    [warning] = warnings_of(ended(1.0, 0.5, 3.0))
    assert warning.startswith("the loss rose from 1 in epoch 1 to 3 in epoch 3; the likely reason is the learning rate")
    regression = ended(0.001, 0.01, accuracy=math.nan, chance=0.0, classes=0)
    assert "the loss rose" in warnings_of(regression)[0]
    assert warnings_of(ended(-2.0, -3.0, chance=0.0, classes=0)) == (), "a loss may be negative"


def test_a_run_that_ends_at_chance_level():
    [warning] = warnings_of(ended(2.4, GUESSING, accuracy=0.11))
    assert warning.startswith("the run ends at chance level: test accuracy 11.0 %, guessing 10.0 %")
    assert "learning rate (0.1), too high or too low" in warning
    both = warnings_of(ended(2.4, 90.0, accuracy=0.1))
    assert len(both) == 2 and "rose" in both[0] and "chance level" in both[1]


def test_chance_is_that_of_the_most_frequent_class():
    assert warnings_of(ended(0.4, 0.3, accuracy=0.9, chance=0.9))
    assert warnings_of(ended(0.4, 0.3, accuracy=0.95, chance=0.9)) == ()
    assert warnings_of(ended(0.69, 0.69, accuracy=0.52, chance=0.5))
    assert warnings_of(ended(0.69, 0.60, accuracy=0.65, chance=0.5)) == ()


def test_a_short_run_is_not_judged_by_its_accuracy():
    assert warnings_of(ended(GUESSING, updates=40, accuracy=0.1)) == ()
    assert warnings_of(ended(6.9, updates=120, accuracy=0.001, chance=0.001, classes=1000)) == (), (
        "8 samples of each class"
    )
    assert warnings_of(ended(90.0, updates=15, accuracy=0.1)), "unless it is far worse than guessing"
    assert warnings_of(ended(90.0, updates=5, accuracy=0.1)) == ()


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_a_run_that_is_not_over_is_not_judged(status):
    assert warnings_of(ended(1.0, 90.0, accuracy=0.1, status=status)) == ()


def test_the_reason_is_staleness_the_learning_rate_or_both():
    def reason(staleness: int) -> str:
        return warnings_of(ended(2.0, 90.0, accuracy=0.1, distribution=stale(staleness)))[-1]

    assert "the likely reason is the learning rate" in reason(0) and "staleness" not in reason(0)
    assert "learning rate (0.1) for a mean staleness of 3.0 updates" in reason(3)
    assert "the likely reason is staleness (mean 15.0 updates)" in reason(15) and "learning rate" not in reason(15)


def test_learning_only_the_training_data_is_another_reason():
    memorised = ended(2.0, 0.1, accuracy=0.1)
    last = replace(memorised.epochs[-1], train_accuracy=0.99)
    [warning] = warnings_of(replace(memorised, epochs=(memorised.epochs[0], last)))
    assert "the training data are learned (99.0 %)" in warning and "learning rate" not in warning


def test_the_chance_level_of_data():
    x, y = torch.zeros(10, 4), torch.tensor([0] * 7 + [1] * 3)
    table = Dataset("own", "table", (4,), ("a", "b"), Arrays(x, y), Arrays(x, y))
    assert chance_accuracy(table) == 0.7
    assert chance_accuracy(replace(table, classes=())) == 0, "nothing is classified"
    assert 0.1 <= chance_accuracy(data.load("digits")) < 0.12
    assert 0.1 < chance_accuracy(data.load("text:100")) < 0.3, "the most frequent character"


@pytest.mark.parametrize(
    ("network", "source", "epochs"),
    [
        ("mlp", "digits", 1), ("mlp", "digits", 3), ("dnn", "digits", 1), ("dnn", "digits", 3), ("lstm", "digits", 1),
        ("lenet5", "digits", 1), ("textlstm", "text:200", 1),
    ],
)  # fmt: skip
def test_short_runs_of_built_in_networks_give_no_false_alarm(network, source, epochs):
    assert run(resolve(network, {"data": source, "epochs": epochs, "threads": 1})).warnings == ()


def test_a_real_run_with_an_absurd_learning_rate_is_warned_of():
    found = run(Workload(lr=30.0, optimizer="momentum", batch=100, epochs=3, threads=1))
    assert "chance level" in found.warnings[-1] and "learning rate (30)" in found.warnings[-1]
