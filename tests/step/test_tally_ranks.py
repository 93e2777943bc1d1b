"""Accuracy from ranks that a step computed itself equals accuracy from scores."""

from __future__ import annotations

import pytest
import torch

from paceline.step.build import assemble, load_data
from paceline.step.compiled_phase import CompiledPhase
from paceline.step.make import make_step
from paceline.step.tally import Score, Tally, ranks_of
from paceline.workload import resolve


@pytest.mark.parametrize("shape", [(12,), (4, 3)])
def test_ranks_give_the_accuracy_of_scores(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    scores, targets, loss = torch.randn(*shape, 7), torch.randint(7, shape), torch.tensor(0.5)
    scores.view(-1, 7)[3] = torch.nan
    scores.view(-1, 7)[4] = 1.0  # ties count against the prediction
    by_scores, by_ranks, mixed = Tally(3), Tally(3), Tally(3)
    by_scores.add(loss, scores, targets)
    by_ranks.add(loss, ranks_of(scores, targets), targets)
    expected = by_scores.read()
    assert 0 < expected.correct < expected.correct_top < expected.classified == 12
    assert by_ranks.read() == expected
    mixed.add(loss, ranks_of(scores, targets), targets)
    mixed.add(loss, scores, targets)
    assert mixed.read() == expected + expected
    joined = Tally(3)
    joined.add_many(loss.expand(2), shape[0] // 2, ranks_of(scores, targets), targets)
    assert joined.read() == expected


def test_a_compiled_step_returns_ranks_and_counts_as_an_uncompiled_one() -> None:
    scores: list[Score] = []
    for kind in ("flat", "compiled"):
        settings = {"data": "text", "batch": 8, "lr": 0.1, "optimizer": "sgd", "options": {"width": 16, "depth": 1}}
        workload = resolve("transformer", settings)
        parts = assemble(workload, load_data(workload), torch.device("cpu"))
        step, _ = make_step(parts, kind)
        tally = Tally(5)
        step.begin(0)
        step.advance(3, tally)
        scores.append(tally.read())
        if kind == "compiled":
            phase = step.phases[0]  # type: ignore[attr-defined]
            assert isinstance(phase, CompiledPhase)
            batch = next(iter(parts.feeder.batches(0)))
            output = phase.step(batch, parts.generator).output
            assert output is not None and output.shape == batch[1].shape and not output.is_floating_point()
        step.close()
    flat, compiled = scores
    assert compiled.classified == flat.classified > 0
    assert compiled.loss == pytest.approx(flat.loss, rel=1e-4)
    assert abs(compiled.correct_top - flat.correct_top) <= 0.01 * flat.classified
