"""Counting: sums over steps of different sizes, and predictions that are only right when they are clearly right."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from paceline.step import tally as tallying
from paceline.step.tally import Score, Tally


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets)


def test_nothing_counted_has_no_loss_and_no_accuracy():
    score = Tally(5).read()
    assert score == Score() and math.isnan(score.loss) and math.isnan(score.accuracy) and math.isnan(score.top_accuracy)


@pytest.mark.parametrize("keep", [1, 3, 256])
def test_sums_over_batches_of_different_sizes(monkeypatch, keep):
    monkeypatch.setattr(tallying, "KEEP_STEPS", keep)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 7, (50,), generator=generator)
    tally = Tally(3)
    for part in (slice(0, 16), slice(16, 32), slice(32, 48), slice(48, 50)):
        tally.add(loss_of(outputs[part], targets[part]), outputs[part], targets[part])
    score = tally.read()
    assert score.samples == score.classified == 50
    assert score.loss == pytest.approx(loss_of(outputs, targets).item(), rel=1e-12)
    assert score.correct == int((outputs.argmax(1) == targets).sum())
    assert score.correct_top == int((outputs.topk(3).indices == targets.unsqueeze(1)).any(1).sum())
    assert tally.read() == score, "reading changes nothing"


def test_ties_and_nan_are_not_right():
    tally = Tally(2)
    outputs = torch.tensor(
        [[1.0, 1.0, 0.0], [math.nan] * 3, [2.0, 1.0, 0.0], [math.nan, 5.0, 0.0], [3.0, math.nan, 0.0]]
    )
    tally.add(torch.tensor(1.0), outputs, torch.tensor([0, 0, 0, 1, 0]))
    score = tally.read()
    assert score.correct == 1, "only the third is clearly right"
    assert score.correct_top == 4, "all but the one without any number have at most one class beside them"


def test_all_outputs_alike_predict_nothing():
    tally = Tally(5)
    tally.add(torch.tensor(1.0), torch.zeros(10, 10), torch.arange(10))
    assert tally.read().correct == tally.read().correct_top == 0


def test_log_probabilities_bring_their_own_loss_and_mix_with_losses():
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 4, (12,), generator=generator)
    mixed = Tally(1)
    mixed.add(None, outputs[:5].log_softmax(1), targets[:5])
    mixed.add(loss_of(outputs[5:9], targets[5:9]), outputs[5:9], targets[5:9])
    mixed.add(None, outputs[9:11].log_softmax(1), targets[9:11])
    mixed.add_many(loss_of(outputs[11:], targets[11:]).view(1), 1, outputs[11:], targets[11:])
    score = mixed.read()
    assert score.loss == pytest.approx(loss_of(outputs, targets).item(), rel=1e-12)
    assert (score.samples, score.correct) == (12, int((outputs.argmax(1) == targets).sum()))


def test_many_steps_at_once_count_like_one_by_one():
    generator = torch.Generator().manual_seed(2)
    outputs, targets = torch.randn(12, 4, generator=generator), torch.randint(0, 4, (12,), generator=generator)
    losses = torch.stack([loss_of(outputs[i : i + 3], targets[i : i + 3]) for i in range(0, 12, 3)])
    one_by_one, at_once = Tally(2), Tally(2)
    for i in range(4):
        one_by_one.add(losses[i], outputs[3 * i : 3 * i + 3], targets[3 * i : 3 * i + 3])
    at_once.add_many(losses, 3, outputs, targets)
    a, b = one_by_one.read(), at_once.read()
    assert a.loss == pytest.approx(b.loss) and (a.correct, a.correct_top, a.samples) == (
        b.correct,
        b.correct_top,
        b.samples,
    )


def test_every_character_of_a_text_is_a_prediction():
    outputs = torch.zeros(2, 3, 4)
    targets = torch.tensor([[0, 1, 2], [3, 0, 1]])
    outputs.scatter_(2, targets.unsqueeze(2), 1.0)
    outputs[0, 0] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    tally = Tally(1)
    tally.add(torch.tensor(2.0), outputs, targets)
    score = tally.read()
    assert (score.samples, score.classified, score.correct, score.loss) == (2, 6, 5, 2.0)


@pytest.mark.parametrize("many", [False, True])
def test_targets_that_are_numbers_are_never_right_or_wrong(many):
    tally = Tally(1)
    if many:
        tally.add_many(torch.tensor([1.0, 3.0]), 2, torch.zeros(4, 1), torch.zeros(4))
    else:
        tally.add(torch.tensor(1.0), torch.zeros(2, 1), torch.zeros(2))
        tally.add(torch.tensor(3.0), torch.zeros(2, 1), torch.zeros(2))
    score = tally.read()
    assert (score.loss, score.samples, score.classified) == (2.0, 4, 0) and math.isnan(score.accuracy)


def test_a_loss_that_is_no_number_is_seen():
    tally = Tally(1)
    tally.add(torch.tensor(math.nan), torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))
    tally.add(torch.tensor(1.0), torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))
    assert math.isnan(tally.read().loss)


def test_scores_add_up():
    assert Score(1.0, 2, 1, 1, 2) + Score(3.0, 4, 2, 3, 4) == Score(4.0, 6, 3, 4, 6)
