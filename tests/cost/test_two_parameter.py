"""The two-parameter model of a study of 2017: its figures from its two observations, exactly."""

from __future__ import annotations

import pytest

from paceline.cost.two_parameter import PUBLISHED, SampleCounts, TwoParameters, fit, solve
from paceline.errors import InputError


def test_two_observations_give_the_study_s_parameters_and_times():
    model = solve((100, 62.0), (2000, 8.0))
    assert model.batch_s == pytest.approx(54 / 475, rel=1e-14)
    assert round(model.batch_s, 5) == 0.11368
    assert round(model.sample_s, 8) == 0.00014737
    assert [round(model.time_s(batch), 2) for batch in (100, 500, 1000, 2000)] == [62.0, 16.53, 10.84, 8.0]
    assert round(model.communication_share(100), 3) == 0.917
    assert round(model.communication_share(2000), 3) == 0.355
    assert model.communication_s(100) == pytest.approx(500 * model.batch_s)


def test_the_lstm_s_communication_is_a_seventh_at_2000():
    assert round(TwoParameters(0.61, 0.0027).communication_share(2000), 3) == 0.139


def test_the_printed_figures_are_within_their_rounding():
    """Within the rounding of its parameters: a share of its own comes out up to a point apart."""
    printed = PUBLISHED["mlp"]
    model = solve(*printed.observed_s.items())
    assert printed.batch_s == round(model.batch_s, 3) and printed.sample_s == round(model.sample_s, 5)
    for batch, seconds in printed.predicted_s.items():
        assert seconds == pytest.approx(model.time_s(batch), rel=0.003)
    for batch, share in printed.communication_share.items():
        assert share == pytest.approx(model.communication_share(batch), abs=0.011)
    lstm = PUBLISHED["lstm"]
    assert round(TwoParameters(lstm.batch_s, lstm.sample_s).communication_share(2000), 3) == 0.139


def test_a_fit_recovers_the_parameters():
    samples = SampleCounts(train=10_000, test=1_000, devices=4)
    made = TwoParameters(0.02, 3e-4, samples)
    found = fit([(batch, made.time_s(batch)) for batch in (10, 20, 50, 100, 1000)], samples)
    assert (found.batch_s, found.sample_s) == (pytest.approx(0.02), pytest.approx(3e-4))
    assert found.samples == samples


def test_a_fit_of_two_observations_solves_them():
    exact, fitted = solve((100, 62.0), (2000, 8.0)), fit([(100, 62.0), (2000, 8.0)])
    assert fitted.batch_s == pytest.approx(exact.batch_s) and fitted.sample_s == pytest.approx(exact.sample_s)


def test_a_fit_minimises_the_squares():
    observations = [(100, 60.0), (100, 64.0), (500, 17.0), (1000, 10.0), (2000, 8.5)]

    def squares(model: TwoParameters) -> float:
        return sum((model.time_s(batch) - seconds) ** 2 for batch, seconds in observations)

    found = fit(observations)
    for a, b in ((1.001, 1), (0.999, 1), (1, 1.01), (1, 0.99)):
        assert squares(found) < squares(TwoParameters(found.batch_s * a, found.sample_s * b))


def test_neither_parameter_of_a_fit_is_negative():
    rising = fit([(100, 1.0), (1000, 2.0), (2000, 3.0)])
    assert rising.batch_s == 0.0 and rising.time_s(500) == pytest.approx(2.0)
    steep = fit([(100, 50.0), (1000, 1.0)])
    assert steep.sample_s == 0.0 and steep.batch_s > 0


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((100, 62.0), (100, 8.0), "use two batch sizes"),
        ((100, 8.0), (2000, 62.0), "takes longer than the smaller batch"),
        ((100, 62.0), (2000, 1.0), "would be negative"),
        ((0, 62.0), (2000, 8.0), "batch=0"),
        ((100, -1.0), (2000, 8.0), "with -1 s"),
        ((100, float("nan")), (2000, 8.0), "with nan s"),
    ],
)
def test_impossible_observations_are_rejected(first, second, words):
    with pytest.raises(InputError, match=words):
        solve(first, second)


def test_too_few_observations_are_rejected():
    with pytest.raises(InputError, match="at least two batch sizes"):
        fit([(100, 1.0), (100, 2.0)])
    with pytest.raises(InputError, match="at least two batch sizes"):
        fit([])
    with pytest.raises(InputError, match="train=0"):
        SampleCounts(train=0)
    with pytest.raises(InputError, match="batch_s=-1"):
        TwoParameters(-1.0, 0.0)
    with pytest.raises(InputError, match="batch=0"):
        TwoParameters(1.0, 1.0).time_s(0)
    assert TwoParameters(0.0, 0.0).communication_share(100) == 0.0
