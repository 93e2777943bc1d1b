"""What users bring is the same for every driver: one process, virtual workers, worker processes; and it is measured."""

from __future__ import annotations

import functools

import pytest

from paceline.measurement.measuring import measure
from paceline.training.drivers.local.launcher import run as run_local
from paceline.training.step_choice import choose_step
from paceline.training.trainer import run
from paceline.training.virtual_run import run_virtual
from paceline.workload import Workload

HERE = "tests.step.user_objects"
CASES = {
    "dictionaries": {"network": "TokenClassifier", "data": "pair_of_dictionaries"},
    "read when needed": {"network": "WithOutputs", "data": "pair_of_named"},
    "own loss": {"network": "classifier", "data": "pair_of_datasets", "loss": "smooth"},
    "model and batch": {"network": "Autoencoder", "data": "no_target", "loss": "reconstruction"},
}


def workload(case: str, **settings) -> Workload:
    given = {key: f"{HERE}:{name}" for key, name in CASES[case].items()}
    return Workload(**{**given, "batch": 10, "epochs": 2, "lr": 0.1, "device": "cpu", "threads": 1, **settings})


@pytest.mark.parametrize("case", CASES)
def test_one_virtual_worker_trains_as_one_process(case: str):
    alone, virtual = run(workload(case)), run_virtual(workload(case), "sync", workers=1)
    assert [e.loss for e in virtual.epochs] == pytest.approx([e.loss for e in alone.epochs], rel=1e-6)
    assert virtual.test_loss == pytest.approx(alone.test_loss, rel=1e-6)


def test_worker_processes_find_and_read_the_same():
    for case in ("read when needed", "own loss"):
        alone, local = run(workload(case)), run_local(workload(case), "sync", workers=1)
        assert local.test_loss == pytest.approx(alone.test_loss, rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_it_is_measured(case: str):
    found = measure(workload(case), choose=functools.partial(choose_step, asked="auto"), iterations=20)
    assert found.iteration_s.median_s > 0 and any(layer.kind == "Linear" for layer in found.layers)
