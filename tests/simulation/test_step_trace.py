"""A simulated cluster as a trace: one row for each worker, in which a step takes what the table says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from paceline.reporting.chrome_trace import chrome_trace
from paceline.simulation.on_cluster import simulate_on, step_model
from paceline.simulation.simulation import simulate_time
from paceline.simulation.step_trace import MOST_WORKERS, trace_of
from paceline.simulation.virtual_cluster import Network, VirtualCluster, parse_change
from paceline.strategy.presets import find_strategy
from paceline.trace import Trace
from tests.reporting.trace_reading import Row, read_rows
from tests.simulation.test_on_cluster import GPUS, NODE, prediction

CASES = [
    ("sync", 8, GPUS, {}),
    ("local-sgd", 8, GPUS, {}),
    ("backup", 8, GPUS, {"backup_workers": 2}),
    ("mixed", 8, GPUS, {"groups": 2}),
    ("downpour", 4, NODE, {}),
    ("delay-compensated", 4, NODE, {}),
    ("stale-sync", 4, NODE, {"staleness_bound": 1}),
    ("sync", 1, NODE, {}),
]


def rows_of(trace: Trace) -> dict[str, Row]:
    """Read as Perfetto would: in order, and nothing that overlaps in part."""
    return {who: row for (_, who), row in read_rows(chrome_trace(trace)).items()}


def traced(strategy: str, workers: int, machine: Any, changes: dict[str, Any], spread: float = 0.2) -> Trace:
    options: dict[str, Any] = {"network": machine.network, "workers_per_machine": 4 if machine is GPUS else 1}
    made = step_model(
        prediction(spread=spread, samples=10**6), machine, workers, find_strategy(strategy, **changes), **options
    )
    return trace_of(made)


@pytest.mark.parametrize(("strategy", "workers", "machine", "changes"), CASES)
def test_every_worker_has_a_row_and_computes_in_it(strategy, workers, machine, changes):
    rows = rows_of(traced(strategy, workers, machine, changes))
    assert set(rows) - {"server"} == {f"worker {number}" for number in range(workers)}
    for who, row in rows.items():
        assert who == "server" or sum(what == "compute" for what, *_ in row) >= 2


@pytest.mark.parametrize(("strategy", "workers", "machine", "changes"), CASES)
def test_a_step_takes_what_is_said_of_it(strategy, workers, machine, changes):
    made = find_strategy(strategy, **changes)
    each = 4 if machine is GPUS else 1
    said = simulate_on(
        prediction(spread=0.2), machine, workers, made, network=machine.network, workers_per_machine=each
    )
    trace = traced(strategy, workers, machine, changes)
    ends_s = [span.end_s for span in trace.spans if span.part == "compute" and span.who == "worker 0"]
    steps = len(ends_s) * (made.push_every if machine is GPUS else made.fetch_every)
    whole_s = max(span.end_s for span in trace.spans if span.who != "server")
    assert whole_s / steps == pytest.approx(said.step_s, rel=0.15)


def test_members_wait_for_the_slowest_and_then_exchange_together():
    rows = rows_of(traced("sync", 8, GPUS, {}))
    exchanges = [[(start, length) for what, start, length, _ in row if what == "all-reduce"] for row in rows.values()]
    assert len(exchanges[0]) > 1 and all(each == exchanges[0] for each in exchanges)
    assert any(what == "wait" for what, *_ in rows["worker 0"])


def test_who_is_late_for_a_round_that_does_not_wait_is_not_in_its_exchange():
    rows = rows_of(traced("backup", 8, GPUS, {"backup_workers": 2}))
    exchanges = Counter(start for row in rows.values() for what, start, *_ in row if what == "all-reduce")
    assert len(exchanges) > 2 and set(exchanges.values()) == {6}


def test_of_many_workers_the_first_are_shown():
    for strategy, machine in (("sync", GPUS), ("downpour", NODE)):
        trace = traced(strategy, 2_000, machine, {})
        assert len(rows_of(trace)) - ("server" in {s.who for s in trace.spans}) == MOST_WORKERS
        assert len(chrome_trace(trace)) < 2_000_000


def test_workers_that_die_in_the_middle_of_something_do_not_go_on_with_it():
    changes = tuple(parse_change(text) for text in ("0:dies:2.5", "1:dies:3.25"))
    cluster = VirtualCluster(network=Network(0.1, 1e3), changes=changes, restart_s=0.1)
    found = simulate_time(find_strategy("downpour"), 3, 20, cluster, message_bytes=50)
    assert [worker.starts for worker in found.distribution.by_worker] == [2, 2, 1]
    rows = rows_of(found.trace)
    assert any(abs(start + length - 2.5e6) < 1 for what, start, length, _ in rows["worker 0"] if what == "compute")


def test_workers_that_die_again_and_again_leave_a_trace_that_can_be_drawn():
    cluster = VirtualCluster(mean_life_s=3.0, restart_s=0.0)
    rows = rows_of(simulate_time(find_strategy("delay-compensated"), 8, 50, cluster, seed=1).trace)
    assert len(rows) == 8 and all("(2)" not in who for who in rows)
