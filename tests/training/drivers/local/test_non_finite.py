"""A payload that is not finite stops the run, or is left out and named; too many in a row are divergence."""

from __future__ import annotations

import pytest

from paceline.errors import Diverged
from paceline.record import load
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from paceline.training.drivers.local import launcher
from tests.training.drivers.local.small import BATCHES, assert_nothing_is_left, parameters, workload

CORRUPT = (Fault("corrupt", 5, 1),)
STRATEGIES = {
    "downpour": (find_strategy("downpour"), 1),
    "softsync": (find_strategy("softsync"), 1),
    "sync": (find_strategy("sync"), 1),
    "mixed": (find_strategy("mixed"), 1),
    "local-sgd": (find_strategy("local-sgd", fetch_every=2, push_every=2), 2),
    "backup": (find_strategy("backup"), 1),
}
"""Each with the batches of a payload."""


@pytest.mark.parametrize("name", STRATEGIES)
def test_with_skip_the_run_continues_without_it(name, tmp_path):
    strategy, batches = STRATEGIES[name]
    workers = 4 if name == "mixed" else 3 if name == "backup" else 2
    run = launcher.run(
        workload(epochs=3), strategy, workers=workers, faults=CORRUPT, on_bad_gradient="skip", out=tmp_path / "run"
    )
    d = run.distribution
    least = name != "backup"  # there it may have been dropped as late
    assert least <= d.ledger.refused <= batches
    assert d.ledger.applied + d.ledger.dropped + d.ledger.refused == 3 * BATCHES
    assert [(fault.what, fault.worker) for fault in d.faults] == [("refused", 1)] * (d.ledger.refused > 0)
    for fault in d.faults:
        assert fault.step is not None and fault.note.startswith("not finite, epoch ")
    assert parameters(tmp_path / "run").isfinite().all()


@pytest.mark.parametrize("name", ["downpour", "softsync", "sync"])
def test_with_stop_the_run_ends_and_the_payload_is_named(name, tmp_path):
    with pytest.raises(
        Diverged, match=r"worker 1, task \d+, epoch \d+, (step|batch) \d+.*`on_bad_gradient='skip'`"
    ) as caught:
        launcher.run(workload(), STRATEGIES[name][0], workers=2, faults=CORRUPT, out=tmp_path / "run")
    assert caught.value.exit_code == 1
    found = load(tmp_path / "run")
    assert found.status == "diverged" and "worker 1" in found.error
    del caught
    assert_nothing_is_left()


@pytest.mark.parametrize("name", ["downpour", "softsync"])
def test_a_hundred_in_a_row_are_divergence_whatever_the_policy(name, tmp_path):
    made = workload(epochs=100, lr=1e30, activation="relu")
    with pytest.raises(Diverged, match="100 payloads in a row were not finite, the last of worker"):
        launcher.run(made, STRATEGIES[name][0], workers=2, on_bad_gradient="skip", out=tmp_path / "run")
    assert load(tmp_path / "run").status == "diverged"


def test_ninety_nine_are_not():
    """Each finite payload begins the count anew."""
    corrupt = tuple(Fault("corrupt", at, at % 2) for at in range(0, 400, 4) for _ in range(3))
    run = launcher.run(workload(epochs=25), "downpour", workers=2, faults=corrupt, on_bad_gradient="skip")
    assert run.distribution.ledger.refused > 100
