"""Durations in words: their means, their randomness by worker, and what is refused."""

from __future__ import annotations

import json
import statistics

import pytest

from paceline.errors import StrategyError
from paceline.simulation.durations import DurationDistribution, DurationSampler, parse_distribution


def draws(given, worker: int = 0, count: int = 4000, seed: int = 0, speeds: tuple[float, ...] = ()) -> list[float]:
    clockwork = DurationSampler(given, seed, 1, speeds)
    return [clockwork.next(worker) for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("gamma:100:0.01", 1.0, 0.1),
        ("gamma:4:0.5", 2.0, 1.0),
        ("constant:0.25", 0.25, 0.0),
        ("3", 3.0, 0.0),
        ("pareto:3:2", 2.0, 2.0 / 3**0.5),
        ("lognormal:0.5:2", 2.0, 2.0 * (2.718281828**0.25 - 1) ** 0.5),
    ],
)
def test_a_spread_has_the_mean_it_says(text, mean, deviation):
    spread = parse_distribution(text, "compute_time")
    values = draws(spread, count=20_000)
    assert spread.mean_s == pytest.approx(mean)
    assert statistics.fmean(values) == pytest.approx(mean, rel=0.03)
    assert statistics.pstdev(values) == pytest.approx(deviation, rel=0.25, abs=1e-12)
    assert min(values) >= 0


def test_a_worker_s_times_depend_on_itself_and_the_seed_alone():
    gamma = parse_distribution("gamma:100:0.01", "compute_time")
    together = DurationSampler(gamma, 5, 1)
    mixed = [(together.next(0), together.next(1)) for _ in range(200)]
    assert [a for a, _ in mixed] == draws(gamma, 0, 200, seed=5)
    assert [b for _, b in mixed] == draws(gamma, 1, 200, seed=5)
    assert draws(gamma, 0, 200, seed=5) != draws(gamma, 1, 200, seed=5)
    assert draws(gamma, 0, 200, seed=6) != draws(gamma, 0, 200, seed=5)


def test_speeds_go_round():
    assert [draws(DurationDistribution("constant", (1.0,)), w, 1, speeds=(1.0, 0.5))[0] for w in range(4)] == [
        1.0,
        2.0,
        1.0,
        2.0,
    ]


@pytest.mark.parametrize("form", ["json", "lines"])
def test_recorded_times_come_in_their_order(form, tmp_path):
    known = [0.1 * i for i in range(1, 8)]
    path = tmp_path / "times"
    path.write_text(json.dumps(known) if form == "json" else "\n".join(map(str, known)))
    values = draws(parse_distribution(f"recorded:{path}", "compute_time"), count=14)
    start = known.index(values[0])
    assert values == (known[start:] + known * 2)[:14]


def test_any_function_will_do():
    assert draws(lambda worker, number: worker + number / 10, worker=3, count=3) == [3.0, 3.1, 3.2]


@pytest.mark.parametrize("wrong", [float("nan"), -1.0, float("inf"), "x", None])
def test_what_a_function_returns_is_checked(wrong):
    with pytest.raises(StrategyError, match="for worker 2"):
        draws(lambda worker, number: wrong, worker=2, count=1)


@pytest.mark.parametrize(
    "text",
    ["gama:1:2", "gamma", "gamma:1", "gamma:1:2:3", "gamma:0:1", "gamma:-1:1", "constant:x", "constant:-1",
     "pareto:1:2", "lognormal:1:inf", "-3", "recorded:", "recorded:/no/such/file"],
)  # fmt: skip
def test_a_wrong_spread_is_refused_by_the_name_of_its_option(text):
    with pytest.raises(StrategyError, match="`server_time"):
        parse_distribution(text, "server_time")


def test_a_file_that_holds_no_times_is_refused(tmp_path):
    for text in ("", "1 2 x", "[1, -2]", "[1,", '["a"]', "nan"):
        path = tmp_path / "times"
        path.write_text(text)
        with pytest.raises(StrategyError, match="should hold"):
            parse_distribution(f"recorded:{path}", "compute_time")
