"""A session samples as configured, and its memory does not grow with the run."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
import torch
from torch import nn

from paceline.measurement import kept_iterations
from paceline.measurement.mark_log import OUTSIDE
from paceline.measurement.sampling_window import window_lengths
from paceline.measurement.session import KEEP_SAMPLES, Session
from tests.measurement.slow_layers import slept_s


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(session: Session, iterations: int) -> Session:
    session.begin()
    for _ in range(iterations):
        session.end_iteration()
    session.close()
    return session


@pytest.mark.parametrize(("every", "warm_up"), [(2, 1), (3, 0), (5, 3), (40, 5)])
def test_one_iteration_of_every_cycle_is_sampled(every, warm_up, monkeypatch):
    monkeypatch.setattr("paceline.measurement.session.MAX_OVERHEAD", math.inf)
    first = max(1, warm_up)  # the first iteration records the shapes
    session = run(Session(nn.Identity(), {}, every=every, warm_up=warm_up), first + 10 * every)
    both = sorted([*session.samples, *session.coarse], key=lambda sample: sample.number)
    assert [(sample.number - first) // every for sample in both] == list(range(10))
    assert {sample.weight for sample in both} == {every}
    sampled = {sample.number for sample in both}
    instrumented = sampled | {number - 1 for number in sampled if every >= 4}  # marks are installed one before
    assert {number for number, _, was in session.walls if was} == instrumented
    assert session.untouched == 10 * every - len(instrumented)


@pytest.mark.parametrize("period", [2, 3, 4, 8])
def test_samples_fall_on_all_iterations_of_a_period(period, monkeypatch):
    """A loop has periods of its own: micro-batches of an update, or a loader's workers."""
    monkeypatch.setattr("paceline.measurement.session.MAX_OVERHEAD", math.inf)
    session = run(Session(nn.Identity(), {}, every=40, warm_up=5), 8_000)
    for samples in (session.samples, session.coarse):
        counts = Counter(sample.number % period for sample in samples)
        assert len(samples) > 90 and len(counts) == period and min(counts.values()) > 100 / period / 3


def test_windows_with_marks_at_layers_and_without_take_turns(monkeypatch):
    monkeypatch.setattr("paceline.measurement.session.MAX_OVERHEAD", math.inf)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    session = Session(model, {}, every=4, warm_up=1)
    session.begin()
    for _ in range(100):
        model(torch.randn(2, 3)).sum().backward()
        session.end_iteration()
    session.close()
    layered = {sample.number: True for sample in session.samples} | {s.number: False for s in session.coarse}
    kinds = [layered[number] for number in sorted(layered)]
    assert all(kinds[:5]) and kinds[5:] == [place % 2 == 1 for place in range(len(kinds) - 5)]
    for sample in session.coarse:  # the passes are timed, and only where they begin and end
        assert sample.part_s("forward") > 0.0 and sample.part_s("backward") > 0.0
        assert {row for part, row in sample.spans_s if part != "loop"} == {"Sequential", OUTSIDE}
    assert {"0", "1"} <= {row for sample in session.samples for _, row in sample.spans_s}


def test_the_parts_of_a_model_whose_modules_are_called_one_by_one(monkeypatch):
    """Windows without marks at layers mark the calls from outside any module, whichever module is called."""
    monkeypatch.setattr("paceline.measurement.session.MAX_OVERHEAD", math.inf)
    model = nn.ModuleDict({"first": nn.Linear(3, 3), "second": nn.Linear(3, 3)})
    session = Session(model, {}, every=4, warm_up=1)
    session.begin()
    for _ in range(60):
        model["second"](model["first"](torch.randn(2, 3))).sum().backward()
        session.end_iteration()
    session.close()
    assert session.coarse
    assert all({("forward", "first"), ("forward", "second")} <= set(s.spans_s) for s in session.coarse)


@pytest.mark.parametrize(
    ("every", "warmup", "kept"),
    [(3, 0, 1), (4, 1, 1), (79, 1, 1), (80, 2, 2), (120, 3, 3), (220, 3, 8), (1_000, 3, 8)],
)
def test_rare_sampling_windows_are_longer(every, warmup, kept, monkeypatch):
    monkeypatch.setattr("paceline.measurement.session.MAX_OVERHEAD", math.inf)
    session = run(Session(nn.Identity(), {}, every=every, warm_up=5), 5 + 3 * every)
    assert len(session.samples) == 3 * kept
    instrumented = [number for number, _, was in session.walls if was]
    assert len(instrumented) == 3 * (warmup + kept)
    assert every < 40 or len(instrumented) / (3 * every) <= 0.05


def test_runs_that_are_only_measured_alternate_between_sampled_and_untouched_iterations():
    """However much that costs, and from the first window on with both kinds of marks."""
    session = Session(nn.Identity(), {}, warm_up=5)
    session.alternate()
    run(session, 5 + 20 * 22)
    assert len(session.samples) == len(session.coarse) == 10 * 8
    instrumented = {number for number, _, was in session.walls if was}
    assert len(instrumented) == 20 * 11 and session.untouched == 20 * 11
    untouched = sorted({number for number, _, was in session.walls if not was})
    assert max(after - before for before, after in pairwise(untouched)) == 12
    assert {sample.weight for sample in session.samples} == {22 / 8}


def test_long_iterations_need_no_warm_up_of_marks():
    assert window_lengths(4, cold=False) == (0, 1) and window_lengths(220, cold=False) == (0, 8)


def test_an_interrupted_window_keeps_its_samples():
    session = Session(nn.Identity(), {}, every=220, warm_up=5)
    session.begin()
    while session.log is None or session.number < session._window.recorded_from:
        session.end_iteration()
    first = session.number
    session.begin()
    for _ in range(10):
        session.end_iteration()
    session.close()
    assert [sample.number for sample in session.samples] == list(range(first, first + 8))


def test_iterations_that_are_not_timed_singly_count_for_the_mean():
    session = Session(nn.Identity(), {}, every=4, warm_up=1)
    session.begin()
    session.end_iteration()
    before = session.untouched
    time.sleep(0.05)
    session.skip(5)
    session.close()
    assert session.untouched == before + 5 and session.untouched_ns >= 0.05e9


def test_an_evaluation_does_not_count_for_its_iteration():
    session = Session(nn.Identity(), {}, every=2, warm_up=1)
    session.begin()
    for _ in range(9):
        session.validated(round(1e9 * slept_s(0.005)))
        session.end_iteration()
    session.close()
    assert median(seconds for _, seconds, _ in session.walls) < 0.002 and session.validation_ns >= 9 * 0.005e9


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory is read from /proc")
def test_memory_is_bounded_over_100_000_iterations(monkeypatch):
    monkeypatch.setattr(
        "paceline.measurement.session.MAX_OVERHEAD", math.inf
    )  # empty iterations: any sampling is expensive
    before = resident_bytes()
    session = run(Session(nn.Identity(), {}, every=2), 100_000)
    assert session.number == 100_000
    assert resident_bytes() - before < 100e6
    assert KEEP_SAMPLES / 4 <= len(session.samples) <= KEEP_SAMPLES
    assert len(session.walls) <= kept_iterations.MOST


def test_the_lists_stay_short_however_long_the_run(monkeypatch):
    monkeypatch.setattr("paceline.measurement.session.MAX_OVERHEAD", math.inf)
    monkeypatch.setattr("paceline.measurement.session.KEEP_SAMPLES", 10)
    monkeypatch.setattr(kept_iterations, "MOST", 400)
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
    assert max(gaps) <= 2 * min(gaps) + 4  # evenly over the run


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
