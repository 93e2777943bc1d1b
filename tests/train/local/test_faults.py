"""Whoever is killed, hangs or pushes nonsense: the run goes on, and every batch counts exactly once."""

from __future__ import annotations

import pytest

from paceline.errors import Diverged, InputError, PacelineError, StrategyError
from paceline.strategy.strategy import preset
from paceline.testing import Fault, random_kills
from paceline.train import local
from paceline.train.local import memory as shared
from paceline.train.local import training
from tests.train.local.small import assert_nothing_is_left, workload

BATCHES = 23
SLOW = tuple(Fault("slow", 0, worker, seconds=0.005) for worker in range(2))
"""So that the run is not over before a killed process is replaced."""


@pytest.mark.parametrize(
    ("strategy", "of_server"),
    [
        (preset("downpour"), 2),
        (preset("sync"), 1),
        pytest.param(preset("delay-compensated"), 1, marks=pytest.mark.slow),
        pytest.param(preset("local-sgd", push_every=4, fetch_every=4), 0, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_kills_at_random_points_lose_nothing_and_count_nothing_twice(strategy, of_server):
    epochs, updates = 25, 25 * BATCHES // 2 // strategy.push_every
    faults = random_kills(workers=2, updates=updates // 2, of_workers=2, of_server=of_server, seed=3)
    run = local.run(workload(epochs=epochs), strategy, workers=2, faults=(*faults, *SLOW))
    d = run.distribution
    assert d.ledger.applied_by_epoch == (BATCHES,) * epochs
    assert (d.ledger.dropped, d.ledger.refused) == (0, 0)
    assert [fault.what for fault in d.faults].count("died") == 2
    assert [fault.what for fault in d.faults].count("server died") == of_server
    assert sum(worker.lives for worker in d.by_worker) == 4
    assert run.test_accuracy > 0.85
    assert_nothing_is_left()


def test_mixed_groups_survive_a_death():
    run = local.run(workload(epochs=20), "mixed", workers=4, faults=(Fault("kill", 40, 1), Fault("kill", 90), *SLOW))
    assert run.distribution.ledger.applied_by_epoch == (BATCHES,) * 20
    assert run.distribution.fault_count == 2


@pytest.mark.slow
def test_payloads_that_wait_for_others_survive_the_server():
    """With softsync they lie in their slots until there are enough, and the server may die meanwhile."""
    slow = tuple(Fault("slow", 0, worker, seconds=0.01 + 0.03 * worker) for worker in range(2))
    kills = tuple(Fault("kill", at) for at in range(8, 28, 4))
    run = local.run(workload(epochs=8), preset("softsync"), workers=4, faults=(*kills, *slow))
    assert run.distribution.ledger.applied_by_epoch == (BATCHES,) * 8
    assert run.distribution.fault_count == len(kills)


def test_a_worker_that_hangs_is_replaced_within_its_timeout():
    run = local.run(workload(epochs=20), "sync", workers=2, worker_timeout_s=1.0, faults=(Fault("hang", 30, 1),))
    d = run.distribution
    assert [(fault.what, fault.worker) for fault in d.faults] == [("hung", 1)]
    assert d.ledger.applied_by_epoch == (BATCHES,) * 20
    assert 1.0 < d.seconds < 15
    assert_nothing_is_left()


def test_a_slow_worker_does_less():
    fault = Fault("slow", 0, 0, seconds=0.02)
    run = local.run(workload(epochs=6), "downpour", workers=2, faults=(fault,))
    slow, fast = run.distribution.by_worker
    assert slow.batches < fast.batches / 2


def test_a_payload_that_is_no_number_is_refused_by_name():
    fault = Fault("corrupt", 10, 1)
    run = local.run(workload(epochs=4), "downpour", workers=2, faults=(fault,), on_bad_gradient="skip")
    d = run.distribution
    assert (d.ledger.refused, d.ledger.applied) == (1, 4 * BATCHES - 1)
    assert [(f.what, f.worker) for f in d.faults] == [("refused", 1)]
    assert d.faults[0].step is not None
    assert run.test_loss < 3


def test_a_payload_that_is_no_number_stops_the_run_when_asked_for():
    with pytest.raises(Diverged, match=r"worker 1, task \d+, epoch \d+, step \d+.*--on-bad-gradient skip") as caught:
        local.run(workload(epochs=4), "downpour", workers=2, faults=(Fault("corrupt", 10, 1),))
    assert caught.value.exit_code == 1
    del caught
    assert_nothing_is_left()


_calls: list[int] = []


def fails_later(gradient, parameters, backup, staleness, state):
    """In the server's process."""
    _calls.append(staleness)
    if len(_calls) > 40:
        raise RuntimeError("no more")
    return gradient


def no_numbers(gradient, parameters, backup, staleness, state):
    return gradient * float("nan")


def ends(gradient, parameters, backup, staleness, state):
    raise SystemExit


def test_an_error_after_a_refusal_is_no_divergence():
    strategy = preset("delay-compensated", correction=f"{__name__}:fails_later")
    with pytest.raises(InputError, match=r"fails_later failed: RuntimeError: no more"):
        local.run(workload(epochs=4), strategy, faults=(Fault("corrupt", 10, 1),), on_bad_gradient="skip")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [("no_numbers", Diverged, "made a gradient that is not finite"), ("ends", InputError, "ends the program")],
)
def test_a_correction_that_ends_the_run_is_named(name, kind, words):
    with pytest.raises(kind, match=f"correction {__name__}:{name} {words}"):
        local.run(workload(epochs=4), preset("delay-compensated", correction=f"{__name__}:{name}"))
    assert_nothing_is_left()


@pytest.mark.parametrize("what", ["Evaluator", "lay_down", "Crew", "EpochTests", "Doorbell"])
def test_a_launcher_that_fails_half_way_leaves_nothing_open(monkeypatch, what):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("half way")

    monkeypatch.setattr(training, what, fail)
    with pytest.raises(RuntimeError, match="half way"):
        local.run(workload(), "downpour", workers=2)
    assert_nothing_is_left()


def test_a_worker_that_cannot_make_the_network_is_named():
    made = workload(network=f"{__package__}.small:builds_only_in_the_launcher", dropout=None)
    with pytest.raises(InputError, match=r"worker [01]: .*builds_only_in_the_launcher failed: .*no such machine") as e:
        local.run(made, "downpour", workers=2)
    assert e.value.exit_code == 2
    del e
    assert_nothing_is_left()


def test_a_worker_that_always_dies_ends_the_run():
    made = workload(network=f"{__package__}.small:ends_its_worker", dropout=None)
    with pytest.raises(PacelineError, match=r"worker [01] was ended by SIGSEGV, 5 times in a row") as e:
        local.run(made, "downpour", workers=2)
    assert e.value.exit_code == 1
    del e
    assert_nothing_is_left()


def test_too_little_memory_is_said_beforehand(monkeypatch):
    monkeypatch.setattr(shared, "free_shared_bytes", lambda: 1 << 16)
    with pytest.raises(PacelineError, match=r"too little memory to share: 2 workers with 17,226 parameters need"):
        local.run(workload(options={"hidden": [128, 64]}), "downpour", workers=2)


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        (preset("mixed", groups=2), {"workers": 3}, "2 groups do not divide 3 workers"),
        (preset("sync"), {"workers": 24}, "24 workers share 23 batches an epoch"),
        (preset("sync"), {"workers": 0}, "workers=0 should be at least 1"),
        (preset("sync"), {"on_bad_gradient": "weep"}, "on-bad-gradient 'weep' should be skip or stop"),
        (preset("sync"), {"worker_timeout_s": 0.0}, "worker-timeout=0 should be above 0"),
        (preset("sync"), {"faults": (Fault("kill", 1, 2),)}, "kill is a fault of worker 2: there is none, only 2"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(strategy, options, message):
    with pytest.raises(StrategyError, match=message):
        local.run(workload(), strategy, **options)
    assert_nothing_is_left()
