"""Whoever is killed at whatever moment: the run continues, every batch counts once, and events repeat what happened."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.errors import Diverged, InputError, PacelineError, StrategyError
from paceline.record import load
from paceline.simulation.replay import replay_run
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.testing import Fault, random_kills
from paceline.training.drivers.local import launcher, local_training
from paceline.training.run import Run
from tests.training.drivers.local.small import BATCHES, assert_nothing_is_left, own, parameters, workload


def slow(workers: int, seconds: float = 0.004) -> tuple[Fault, ...]:
    """So that the run is not over before a killed process is replaced."""
    return tuple(Fault("slow", 0, worker, seconds=seconds) for worker in range(workers))


def averaged(gradient, late):
    """Keeps something for each worker and something for all: a moving average of each."""
    for kept in (late.state["mine"], late.server_state["ours"]):
        kept.mul_(0.9).add_(gradient, alpha=0.1)
    return 0.5 * gradient + 0.25 * (late.state["mine"] + late.server_state["ours"])


averaged.state = ("mine",)
averaged.server_state = ("ours",)


def two_rates(named):
    """Parameter groups and a scheduler."""
    biases = [p for name, p in named.items() if "bias" in name]
    weights = [p for name, p in named.items() if "bias" not in name]
    optimizer = torch.optim.Adam([{"params": weights}, {"params": biases, "lr": 1e-3}], lr=5e-3)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 20, gamma=0.9)


PATHS = {
    # Workers commit by themselves.
    "downpour": (find_strategy("downpour"), 2),
    "delay-compensated": (find_strategy("delay-compensated"), 2),
    "easgd": (find_strategy("easgd", push_every=3), 2),
    # Workers commit rounds.
    "sync": (find_strategy("sync"), 2),
    "mixed": (find_strategy("mixed"), 4),
    "local-sgd": (find_strategy("local-sgd", push_every=3, fetch_every=3), 2),
    # The server commits.
    "softsync": (find_strategy("softsync"), 2),
    "backup": (find_strategy("backup"), 3),
    "stale-sync": (find_strategy("stale-sync"), 2),
    "custom correction": (find_strategy("delay-compensated", correction=f"{__name__}:averaged"), 2),
    "torch.optim": (find_strategy("downpour", server_optimizer=f"{__name__}:two_rates"), 2),
}
COMMITTED_BY_WORKERS = ("downpour", "delay-compensated", "easgd", "sync", "mixed", "local-sgd")


def updates_of(strategy: Strategy, workers: int, epochs: int) -> int:
    """At least so many are made."""
    members = workers // strategy.groups if strategy.groups is not None else strategy.payloads_per_update(workers)
    return epochs * BATCHES // (members * strategy.push_every)


def assert_each_batch_once(run: Run, epochs: int) -> None:
    ledger = run.distribution.ledger
    assert ledger.applied + ledger.dropped + ledger.refused == epochs * BATCHES
    assert run.distribution.strategy.backup_workers or ledger.applied_by_epoch == (BATCHES,) * epochs
    assert ledger.updates == run.updates


def survives(name: str, place: Path, epochs: int, of_workers: int, of_server: int, seed: int) -> Run:
    """A run with so many kills at random moments, which is repeated from its events."""
    strategy, workers = PATHS[name]
    kills = random_kills(
        workers=workers, updates=updates_of(strategy, workers, epochs) // 2, of_workers=of_workers,
        of_server=of_server, seed=seed,
    )  # fmt: skip
    made = workload(epochs=epochs, optimizer="momentum", lr=0.02)
    faults = (*kills, *slow(workers))
    run = launcher.run(made, strategy, workers=workers, out=place, record_events=True, faults=faults)
    assert_each_batch_once(run, epochs)
    met = [fault.what for fault in run.distribution.faults]
    assert (met.count("died"), met.count("server died"), len(met)) == (of_workers, of_server, of_workers + of_server)
    assert sum(worker.starts for worker in run.distribution.by_worker) == workers + of_workers
    assert torch.equal(replay_run(place), parameters(place)), "the events tell what happened"
    assert len(load(place / "events.json").updates) == run.updates
    return run


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "torch.optim" else []) for name in PATHS]
)  # importing torch.optim takes seconds in each process
def test_kills_of_workers_and_server_lose_nothing_and_count_nothing_twice(name, tmp_path):
    run = survives(name, tmp_path / "run", 16, 5, 1, seed=1)
    assert run.distribution.commits.startswith("the workers") == (name in COMMITTED_BY_WORKERS)
    assert run.epochs[-1].test_loss < run.epochs[0].test_loss
    assert_nothing_is_left()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PATHS)
def test_so_it_is_with_fifty_and_five(name, tmp_path):
    survives(name, tmp_path / "run", 200, 50, 5, seed=2)


@pytest.mark.parametrize("name", ["sync", "sync with a custom correction"])
def test_a_synchronous_run_with_kills_ends_with_the_parameters_of_an_undisturbed_one(name, tmp_path):
    strategy = find_strategy("sync")
    if name != "sync":
        strategy = Strategy(correction=f"{__name__}:averaged")
    made = workload(epochs=6, optimizer="momentum", lr=0.02)
    launcher.run(made, strategy, workers=2, out=tmp_path / "whole")
    kills = (Fault("kill", 8, 1), Fault("kill", 20), Fault("kill", 21, 0), Fault("kill", 40, 1))
    run = launcher.run(made, strategy, workers=2, out=tmp_path / "disturbed", faults=(*kills, *slow(2)))
    assert run.distribution.fault_count == len(kills)
    assert torch.equal(parameters(tmp_path / "disturbed"), parameters(tmp_path / "whole"))


def test_payloads_that_wait_for_others_survive_the_server():
    """With softsync they lie in their slots until there are enough, and the server may die meanwhile."""
    uneven = tuple(Fault("slow", 0, worker, seconds=0.01 + 0.01 * worker) for worker in range(4))
    kills = tuple(Fault("kill", at) for at in (4, 8, 12))
    run = launcher.run(workload(epochs=6), find_strategy("softsync"), workers=4, faults=(*kills, *uneven))
    assert run.distribution.fault_count == len(kills)
    assert_each_batch_once(run, 6)


def test_all_at_once(tmp_path):
    kills = tuple(Fault("kill", 10, worker) for worker in (0, 1, None))
    run = launcher.run(workload(epochs=4), "sync", workers=2, faults=(*kills, *slow(2)))
    assert run.distribution.fault_count == 3
    assert_each_batch_once(run, 4)


def test_a_slow_worker_does_less():
    run = launcher.run(workload(epochs=6), "downpour", workers=2, faults=(Fault("slow", 0, 0, seconds=0.2),))
    late, fast = run.distribution.by_worker
    assert late.batches < fast.batches / 2


def test_epochs_that_end_together_are_both_validated():
    """Worker 1 still computes on the first epoch when worker 0 has done the second."""
    run = launcher.run(workload(epochs=2), "downpour", workers=2, faults=(Fault("slow", 0, 1, seconds=0.5),))
    first, second = run.epochs
    assert first.test_loss < 2.2 and second.test_loss < 2.2, "untrained parameters have 2.3"


# What cannot be survived


def failing(gradient, late):
    """In the server's process."""
    if late.step > 10:
        raise RuntimeError("no more")
    return gradient


def non_finite(gradient, late):
    return gradient * float("nan")


def ending(gradient, late):
    raise SystemExit


@pytest.mark.parametrize(
    ("name", "kind", "words", "status"),
    [
        ("failing", InputError, "failed: RuntimeError: no more", "failed"),
        ("non_finite", Diverged, "made a non-finite gradient", "diverged"),
        ("ending", InputError, "ends the program", "failed"),
    ],
)
def test_a_correction_that_ends_the_run_is_named(name, kind, words, status, tmp_path):
    strategy = find_strategy("delay-compensated", correction=f"{__name__}:{name}")
    with pytest.raises(kind, match=f"correction {__name__}:{name} {words}") as caught:
        launcher.run(workload(), strategy, out=tmp_path / "run")
    assert load(tmp_path / "run").status == status
    assert words in load(tmp_path / "run").error
    del caught
    assert_nothing_is_left()


def test_a_worker_that_cannot_make_the_network_is_named(tmp_path):
    with pytest.raises(InputError, match=r"worker [01]: .*builds_only_in_the_launcher failed: .*no such machine") as e:
        launcher.run(own("builds_only_in_the_launcher"), "downpour", out=tmp_path / "run")
    assert e.value.exit_code == 2
    found = load(tmp_path / "run")
    assert found.status == "failed" and "no such machine" in found.error
    del e
    assert_nothing_is_left()


def test_a_worker_that_always_dies_ends_the_run(tmp_path):
    with pytest.raises(PacelineError, match=r"worker [01] was ended by SIGSEGV, 5 times in a row") as e:
        launcher.run(own("ends_its_worker"), "downpour", out=tmp_path / "run")
    assert e.value.exit_code == 1
    assert load(tmp_path / "run").status == "failed"
    del e
    assert_nothing_is_left()


@pytest.mark.parametrize("what", ["Evaluator", "Supervisor", "ValidationThread", "LocalProgress", "Doorbell"])
def test_a_launcher_that_fails_half_way_leaves_nothing_open(monkeypatch, what):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("half way")

    monkeypatch.setattr(local_training, what, fail)
    with pytest.raises((RuntimeError, PacelineError), match="half way"):
        launcher.run(workload(), "downpour", workers=2)
    assert_nothing_is_left()


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("mixed", {"workers": 3}, "2 groups do not divide 3 workers"),
        ("sync", {"workers": 24}, "24 workers share 23 batches per epoch"),
        ("sync", {"workers": 0}, "workers=0 should be a whole number from 1"),
        ("sync", {"workers": 241}, "workers=241 are too many for one machine: at most 240"),
        ("sync", {"on_bad_gradient": "weep"}, "on_bad_gradient 'weep' is unknown: known: skip, stop"),
        ("sync", {"server_threads": 0}, "server_threads=0 should be a whole number from 1 to 1,024"),
        ("sync", {"validate_every": "soon"}, "`validate_every='soon'` should be like 1epoch"),
        ("sync", {"faults": (Fault("kill", 1, 2),)}, "kill is a fault of worker 2: there is none, only 2"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(strategy, options, message, tmp_path):
    with pytest.raises(StrategyError, match=message):
        launcher.run(workload(), strategy, out=tmp_path / "run", **options)
    assert_nothing_is_left()
