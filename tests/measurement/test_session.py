"""A session samples as configured, and its memory does not grow with the run."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.measurement.session import KEEP_ITERATIONS, KEEP_SAMPLES, Session


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(session: Session, iterations: int) -> Session:
    session.begin()
    for _ in range(iterations):
        session.end_iteration()
    session.close()
    return session


@pytest.mark.parametrize(
    ("every", "warm_up", "sampled"),
    [
        (1, 0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (1, 5, [5, 6, 7, 8, 9, 10, 11]),
        (2, 1, [2, 4, 6, 8, 10]),
        (5, 3, [5, 10]),
        (20, 5, []),
    ],
)
def test_these_iterations_are_sampled(every, warm_up, sampled):
    session = run(Session(nn.Identity(), {}, every=every, warm_up=warm_up), 12)
    assert [sample.number for sample in session.samples] == sampled
    first = max(1, warm_up)  # the first iteration tells the shapes
    instrumented = set(sampled) | {n - 1 for n in sampled if every >= 4}  # marks are put in place one iteration before
    assert [(number, was) for number, _, was in session.walls] == [(n, n in instrumented) for n in range(first, 12)]


@pytest.mark.parametrize(
    ("every", "warmup", "kept"),
    [(3, 0, 1), (4, 1, 1), (79, 1, 1), (80, 2, 2), (120, 3, 3), (220, 3, 8), (1_000, 3, 8)],
)
def test_rare_sampling_windows_are_longer(every, warmup, kept, monkeypatch):
    monkeypatch.setattr("paceline.measurement.session.MAX_OVERHEAD", math.inf)
    session = run(Session(nn.Identity(), {}, every=every, warm_up=5), 5 + 3 * every)
    first = [5 + every // 2 + number * every for number in range(3)]
    assert [sample.number for sample in session.samples] == [n + i for n in first for i in range(kept)]
    instrumented = [number for number, _, was in session.walls if was]
    assert instrumented == [n + i for n in first for i in range(-warmup, kept)]
    assert every < 40 or len(instrumented) / (3 * every) <= 0.05


def test_an_interrupted_window_keeps_its_samples():
    session = Session(nn.Identity(), {}, every=220, warm_up=5)
    session.begin()
    for _ in range(5 + 110 + 3):
        session.end_iteration()
    session.begin()
    for _ in range(10):
        session.end_iteration()
    session.close()
    assert [sample.number for sample in session.samples] == list(range(115, 123))
    assert [number for number, _, was in session.walls if was] == list(range(112, 123))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory is read from /proc")
@pytest.mark.parametrize("every", [2, 20])
def test_memory_is_bounded_over_100_000_iterations(every, monkeypatch):
    monkeypatch.setattr(
        "paceline.measurement.session.MAX_OVERHEAD", math.inf
    )  # empty iterations: any sampling is expensive
    before = resident_bytes()
    session = run(Session(nn.Identity(), {}, every=every), 100_000)
    assert session.number == 100_000
    assert resident_bytes() - before < 100e6
    assert KEEP_SAMPLES / 4 <= len(session.samples) <= KEEP_SAMPLES
    assert len(session.walls) <= KEEP_ITERATIONS


def test_the_lists_stay_short_however_long_the_run(monkeypatch):
    monkeypatch.setattr("paceline.measurement.session.MAX_OVERHEAD", math.inf)
    monkeypatch.setattr("paceline.measurement.session.KEEP_SAMPLES", 10)
    monkeypatch.setattr("paceline.measurement.session.KEEP_ITERATIONS", 400)
    session, most = Session(nn.Identity(), {}, every=4), [0, 0]
    session.begin()
    for _ in range(5_000):
        session.end_iteration()
        most = [max(most[0], len(session.samples)), max(most[1], len(session.walls))]
    session.close()
    assert most[0] <= 10 and most[1] <= 400
    numbers = [sample.number for sample in session.samples]
    assert numbers == sorted(set(numbers)) and numbers[0] < 1_000 and numbers[-1] > 4_000
    gaps = {after - before for before, after in pairwise(numbers)}
    assert max(gaps) <= 2 * min(gaps)  # evenly over the run
    kept = {number for number, _, _ in session.walls}
    assert sum(1 for n in numbers if {n - 1, n + 1} & kept) >= len(numbers) - 1  # each with something to compare


def test_backward_passes_are_counted_in_sampled_iterations():
    model = nn.Linear(2, 2)
    session = Session(model, {}, every=2, warm_up=1)
    session.begin()
    for _ in range(7):
        model(torch.randn(3, 2)).sum().backward()
        session.end_iteration()
    session.close()
    assert len(session.samples) == 3 and session.backwards == 3


def test_an_iteration_whose_beginning_was_not_seen_does_not_count():
    session = run(Session(nn.Identity(), {}, every=2, warm_up=1), 3)
    session.end_iteration()
    assert session.number == 3
    session.end_iteration()
    assert session.number == 4
    session.close()


def test_with_enough_samples_sampling_is_reduced_to_one_percent_overhead():
    model = nn.Linear(2, 2)
    session = Session(model, {}, every=4, warm_up=1)
    session.begin()
    for _ in range(400):
        model(torch.randn(3, 2)).sum().backward()
        session.end_iteration()
    session.close()
    untouched = [seconds for _, seconds, sampled in session.walls if not sampled]
    assert session.every > 4 and len(session.samples) >= 20
    assert sum(untouched) > 0.9 * 300 * min(untouched)  # most are untouched
