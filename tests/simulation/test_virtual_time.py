"""Virtual time by hand: who waits for what, for how long, and what queues."""

from __future__ import annotations

import pytest

from paceline.errors import PacelineError, StrategyError
from paceline.record import to_json
from paceline.simulation.durations import DurationDistribution
from paceline.simulation.simulation import simulate_time
from paceline.simulation.virtual_cluster import Change, Network, VirtualCluster, parse_change
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault

SECOND = DurationDistribution("constant", (1.0,))


def seconds(name: str, workers: int, steps: int, **cluster) -> float:
    return simulate_time(find_strategy(name), workers, steps, VirtualCluster(**cluster)).distribution.seconds


def test_without_a_network_messages_take_no_time():
    for name in ("sync", "downpour", "delay-compensated", "mixed", "local-sgd", "easgd"):
        assert seconds(name, 4, 10) == 10.0


def test_a_synchronous_step_takes_as_long_as_its_slowest_worker():
    assert seconds("sync", 3, 10, speeds=(1.0, 1.0, 0.5)) == 20.0


def test_asynchronous_workers_do_not_wait_for_the_slow_one():
    """30 steps in all; while the slow one does one, the others do two each."""
    found = simulate_time(find_strategy("downpour"), 3, 10, VirtualCluster(speeds=(1.0, 1.0, 0.5))).distribution
    assert [w.batches for w in found.by_worker] == [12, 12, 6]
    assert found.seconds == 12.0


def test_a_synchronous_step_does_not_wait_for_its_spare():
    """The slow one needs 10 s a batch; when the others have done 28, its second one is not waited for at the end."""
    found = simulate_time(
        find_strategy("backup", backup_workers=1), 3, 10, VirtualCluster(speeds=(1.0, 1.0, 0.1))
    ).distribution
    assert found.ledger.dropped == 2
    assert found.ledger.applied == 28
    assert found.seconds == 14.0


def test_the_server_takes_one_update_after_another():
    """Two payloads arrive at 1 s; the second update is done at 1.5 s, and its worker begins again then."""
    cluster = VirtualCluster(server=DurationDistribution("constant", (0.25,)))
    found = simulate_time(find_strategy("delay-compensated"), 2, 2, cluster)
    applies = [(s.start_s, s.end_s) for s in found.trace.spans if s.part == "apply"]
    assert applies == [(1.0, 1.25), (1.25, 1.5), (2.25, 2.5), (2.5, 2.75)]
    assert found.distribution.server_s == 1.0
    assert [w.waiting_s for w in found.distribution.by_worker] == [0.75, 0.75]


def test_who_overlaps_does_not_wait_for_the_server():
    cluster = VirtualCluster(server=DurationDistribution("constant", (0.25,)))
    found = simulate_time(find_strategy("downpour"), 2, 3, cluster)
    computes = [s.start_s for s in found.trace.spans if s.part == "compute"]
    assert computes == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert found.distribution.seconds == 3.5


def test_messages_queue_at_the_server_s_link():
    """100 bytes at 1,000 bytes a second and 0.01 s of latency: fetch 0.01 + 0.1 + 0.01, the other 0.1 later."""
    cluster = VirtualCluster(network=Network(0.01, 1000.0))
    found = simulate_time(find_strategy("delay-compensated"), 2, 1, cluster, message_bytes=100)
    fetches = [(s.who, round(s.end_s, 6)) for s in found.trace.spans if s.part == "fetch"]
    pushes = [(s.who, round(s.end_s, 6)) for s in found.trace.spans if s.part == "push"]
    assert fetches == [("worker 0", 0.12), ("worker 1", 0.22)]
    assert pushes == [("worker 0", 1.23), ("worker 1", 1.33)]
    assert [round(w.communicating_s, 6) for w in found.distribution.by_worker] == [0.23, 0.33]


def test_copies_of_one_s_own_memory_do_not_queue():
    cluster = VirtualCluster(network=Network(bandwidth=1000.0, shared=False))
    found = simulate_time(find_strategy("delay-compensated"), 2, 1, cluster, message_bytes=100).distribution
    assert found.seconds == pytest.approx(1.2)
    assert [round(w.communicating_s, 6) for w in found.by_worker] == [0.2, 0.2]


def test_with_a_network_a_push_overlaps_with_the_next_step():
    """Downpour hides the push behind the next step, delay compensation is one transaction."""
    network = Network(bandwidth=1000.0)
    hidden = simulate_time(
        find_strategy("downpour"), 1, 10, VirtualCluster(network=network), message_bytes=100
    ).distribution
    whole = simulate_time(find_strategy("delay-compensated"), 1, 10, VirtualCluster(network=network), message_bytes=100)
    assert hidden.seconds == pytest.approx(10 * 1.1 + 0.1)
    assert whole.distribution.seconds == pytest.approx(10 * 1.2)


def test_a_worker_that_dies_comes_back_and_its_batch_is_done_by_another():
    cluster = VirtualCluster(changes=(Change(1.5, 0, "dies"),), restart_s=2.0)
    found = simulate_time(find_strategy("downpour"), 2, 5, cluster).distribution
    assert found.ledger.returned == 1 and found.ledger.applied == 10
    assert [w.starts for w in found.by_worker] == [2, 1]
    assert [(f.what, f.at_s, f.worker) for f in found.faults] == [("died", 1.5, 0)]
    assert found.by_worker[0].computing_s == pytest.approx(found.by_worker[0].batches + 0.5)


def test_workers_join_and_leave():
    cluster = VirtualCluster(changes=(Change(3.0, 1, "joins"), Change(5.5, 0, "leaves")))
    found = simulate_time(find_strategy("downpour"), 2, 5, cluster).distribution
    assert [w.batches for w in found.by_worker] == [5, 5]
    assert found.seconds == 8.0


def test_when_nobody_is_left_that_is_said():
    cluster = VirtualCluster(changes=(Change(2.5, 0, "leaves"),))
    with pytest.raises(PacelineError, match=r"after 2\.5 virtual seconds and 2 updates no worker is left"):
        simulate_time(find_strategy("downpour"), 1, 5, cluster)


def test_workers_that_never_finish_are_not_waited_for_for_ever():
    with pytest.raises(PacelineError, match="die faster than they finish"):
        simulate_time(find_strategy("sync"), 2, 5, VirtualCluster(mean_life_s=0.001))


def test_random_deaths_follow_from_the_seed():
    cluster = VirtualCluster(mean_life_s=10.0, restart_s=1.0)
    a, b, c = (simulate_time(find_strategy("mixed"), 4, 50, cluster, seed=s).distribution for s in (1, 1, 2))
    assert to_json(a) == to_json(b) != to_json(c)
    assert a.fault_count > 5 and a.ledger.applied == 200


def test_a_hanging_worker_is_given_up_and_a_slow_one_is_slow():
    hung = simulate_time(find_strategy("sync"), 2, 5, faults=(Fault("hang", at=2, worker=1),)).distribution
    assert [f.what for f in hung.faults] == ["hung"]
    assert hung.ledger.applied == 10 and hung.seconds > 10
    slow = simulate_time(find_strategy("sync"), 2, 5, faults=(Fault("slow", at=0, worker=1, seconds=1.0),)).distribution
    assert slow.seconds == pytest.approx(10.0, abs=1.0)


def test_an_idle_worker_that_hangs_is_replaced_and_its_next_task_goes_elsewhere():
    """Worker 1 waits for the warm start when it hangs, at 1 s; it is given a batch at 3 s and replaced at 11 s."""
    hangs = (Fault("hang", at=1, worker=1),)
    found = simulate_time(find_strategy("downpour", warm_start=3), 2, 10, faults=hangs)
    of_worker_1 = [span.start_s for span in found.trace.spans if (span.who, span.part) == ("worker 1", "compute")]
    assert min(of_worker_1) == 11.0
    d = found.distribution
    assert [(fault.what, fault.worker, fault.at_s) for fault in d.faults] == [("hung", 1, 11.0)]
    assert (d.ledger.applied, d.ledger.returned) == (20, 1)
    assert [worker.starts for worker in d.by_worker] == [1, 2]
    assert d.seconds == 16.0


def test_a_worker_that_hangs_twice_is_replaced_once():
    hangs = (Fault("hang", at=1, worker=1), Fault("hang", at=5, worker=1))
    found = simulate_time(find_strategy("downpour"), 2, 20, faults=hangs).distribution
    assert [(fault.what, fault.at_s) for fault in found.faults] == [("hung", 11.0)]


def test_a_fault_of_nobody_is_refused():
    with pytest.raises(StrategyError, match="hang is a fault of worker 4: there is none, only 3"):
        simulate_time(find_strategy("sync"), 3, 5, faults=(Fault("hang", at=2, worker=4),))


def test_who_leaves_while_it_is_dead_does_not_come_back():
    changes = (Change(1.5, 1, "dies"), Change(2.5, 1, "leaves"))
    for name in ("downpour", "sync", "mixed"):
        found = simulate_time(find_strategy(name), 4, 5, VirtualCluster(changes=changes, restart_s=2.0)).distribution
        assert found.ledger.applied == 20
        assert found.by_worker[1].starts == 1


def test_a_warm_start_leaves_the_others_waiting():
    found = simulate_time(find_strategy("downpour", warm_start=3), 4, 4).distribution
    assert found.seconds == pytest.approx(3 + 13 / 4, abs=1.0)
    assert [w.waiting_s >= 3.0 for w in found.by_worker] == [False, True, True, True]


def test_the_trace_is_bounded():
    assert len(simulate_time(find_strategy("downpour"), 10, 100, spans=50).trace.spans) == 50


@pytest.mark.parametrize(
    "text", ["1:dies", "x:dies:3", "1:dies:x", "1:explodes:3", "-1:dies:3", "1:dies:-3", "1:dies:inf"]
)
def test_a_wrong_change_is_refused(text):
    with pytest.raises(StrategyError):
        parse_change(text)


@pytest.mark.parametrize(
    "wrong",
    [{"speeds": (1.0, 0.0)}, {"mean_life_s": 0.0}, {"restart_s": -1.0}],
)
def test_a_wrong_cluster_is_refused(wrong):
    with pytest.raises(StrategyError):
        VirtualCluster(**wrong)


@pytest.mark.parametrize("wrong", [{"latency_s": -1.0}, {"bandwidth": 0.0}, {"bandwidth": float("nan")}])
def test_a_wrong_network_is_refused(wrong):
    with pytest.raises(StrategyError):
        Network(**wrong)


def test_many_workers_are_simulated_in_seconds():
    """A tenth of 10,000 workers with 100 steps; the whole is a benchmark."""
    found = simulate_time(
        find_strategy("downpour"), 1000, 100, VirtualCluster(compute=DurationDistribution("gamma", (100.0, 0.01)))
    )
    assert found.distribution.ledger.applied == 100_000
    assert found.distribution.ledger.mean_staleness == pytest.approx(999, rel=0.02)
