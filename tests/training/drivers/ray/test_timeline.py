"""The trace of a cluster: spans of all nodes on one clock."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from paceline.strategy.presets import find_strategy
from paceline.trace import Span
from paceline.training.drivers.ray.timeline import SPANS_KEPT, TimedSpan, Timeline, WorkerSpans, clock_offset
from tests.contract.small_training import workload
from tests.training.drivers.ray.in_process import job_of
from tests.training.drivers.ray.test_server_and_workers import trained


class Network:
    """Messages that take a random time, and a server whose clock is `ahead_s` of this one."""

    def __init__(self, ahead_s: float, fastest_s: float, slowest_s: float) -> None:
        self.now_s, self.ahead_s, self.range_s = 100.0, ahead_s, (fastest_s, slowest_s)
        self.random = random.Random(0)
        self.trips_s: list[float] = []

    def ask(self) -> float:
        there_s, back_s = self.random.uniform(*self.range_s), self.random.uniform(*self.range_s)
        answer_s = self.now_s + there_s + self.ahead_s
        self.now_s += there_s + back_s
        self.trips_s.append(there_s + back_s)
        return answer_s


@pytest.mark.parametrize("ahead_s", [-5000.0, 0.0, 3.25])
def test_clocks_are_aligned_to_half_of_the_shortest_round_trip(ahead_s):
    network = Network(ahead_s, 0.001, 0.2)
    offset_s = clock_offset(network.ask, lambda: network.now_s)
    assert abs(offset_s - ahead_s) <= min(network.trips_s) / 2 < max(network.trips_s) / 4


def test_with_messages_of_equal_time_they_are_aligned_exactly():
    network = Network(7.5, 0.01, 0.01)
    assert clock_offset(network.ask, lambda: network.now_s) == pytest.approx(7.5, abs=1e-9)


def test_a_worker_reports_each_of_its_first_spans_once_on_the_servers_clock():
    spans = WorkerSpans(offset_s=10.0)
    spans.add("fetch", 1.0, 2.0)
    assert spans.take() == (TimedSpan("fetch", 11.0, 12.0),) and spans.take() == ()
    for _ in range(2 * SPANS_KEPT):
        spans.add("compute", 2.0, 3.0)
    assert len(spans.take()) == SPANS_KEPT - 1


def test_the_timeline_has_the_first_spans_of_everyone_since_the_beginning():
    timeline = Timeline()
    timeline.add("worker 1", *[TimedSpan("compute", 5.0, 6.0)] * (SPANS_KEPT + 3))
    timeline.add("server", TimedSpan("update", 6.0, 6.5))
    found = timeline.since(4.0)
    assert found[0] == Span("server", "update", 2.0, 2.5) and found[1] == Span("worker 1", "compute", 1.0, 2.0)
    assert len(found) == 1 + SPANS_KEPT


@pytest.mark.parametrize("name", ["sync", "downpour"])
def test_a_run_has_spans_of_every_worker_in_their_order(name):
    job, state = job_of(workload(batch=16, epochs=1), find_strategy(name), 2)
    found = trained(job, state).trace()
    assert {span.who for span in found} == {"server", "worker 0", "worker 1"}
    assert {span.part for span in found} == {"compute", "fetch", "wait", "update"}
    for who in ("worker 0", "worker 1"):
        mine = [span for span in found if span.who == who]
        assert all(one.end_s <= other.start_s + 1e-6 for one, other in pairwise(mine))
        assert mine[0].start_s > -1.0 and all(span.duration_s >= 0 for span in mine)
