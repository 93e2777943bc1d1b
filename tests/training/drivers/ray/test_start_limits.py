"""Workers that will not come end the run with one line, long before the limit where that is known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paceline.errors import PacelineError
from paceline.training.drivers.ray.connection import Shares
from paceline.training.drivers.ray.messages import Status
from paceline.training.drivers.ray.start_limits import ROOM_EVERY_S, StartLimits

STARTING = Status("", begun=True)
WORKING = Status("", begun=True, began_ago_s=1.0, alive=2)


def workers(*incarnations):
    return [SimpleNamespace(incarnation=number, started_s=0.0) for number in incarnations]


def cluster(alive):
    """Two nodes with one CPU each; `alive` may change."""
    return SimpleNamespace(nodes=lambda: [{"Alive": up, "Resources": {"CPU": 1.0}} for up in alive])


def limits(alive):
    return StartLimits(cluster(alive), Shares(1.0, 0.0), 600.0, 0.0)


def test_a_node_that_turns_out_to_be_dead_is_found_while_workers_start():
    alive = [True, True]
    found = limits(alive)
    found.check(STARTING, workers(1, 1), ROOM_EVERY_S)
    alive[1] = False
    found.check(STARTING, workers(1, 1), ROOM_EVERY_S + 0.1)  # the nodes are not asked for at every turn
    with pytest.raises(PacelineError, match=r"2 workers with 1 CPU each do not fit: .* on 1 node, room for 1;"):
        found.check(STARTING, workers(1, 1), 2 * ROOM_EVERY_S)


def test_room_for_workers_that_died_while_they_started_is_not_needed():
    limits([True, False]).check(STARTING, workers(1, 2), 10.0)


def test_a_run_that_has_begun_goes_on_with_less_room():
    limits([True, False]).check(WORKING, workers(1, 1), 10.0)


def test_a_worker_that_does_not_start_is_named():
    found = limits([True, True])
    found.check(STARTING, workers(1, 1), 600.0)
    with pytest.raises(PacelineError, match=r"worker 0 did not start within 600 s \(start_timeout\)"):
        found.check(STARTING, workers(1, 1), 600.1)


def test_a_run_without_any_worker_ends_after_the_limit():
    found, alone = limits([True, True]), Status("", begun=True, began_ago_s=1.0)
    found.check(WORKING, workers(1, 1), 100.0)
    found.check(alone, workers(2, 2), 700.0)
    with pytest.raises(PacelineError, match=r"no worker was alive for 600 s \(start_timeout\)"):
        found.check(alone, workers(2, 2), 700.1)
