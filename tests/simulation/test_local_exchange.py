"""Workers of one machine that were calibrated: simulating, planning and predicting say what was measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from paceline import record
from paceline.cluster import Device, DeviceCount, Link, Machine, Peak
from paceline.cost.calibration import StepOverheads
from paceline.cost.calibrations import calibration_path
from paceline.cost.exchange import ExchangeCost, protocol_of
from paceline.cost.predicting import predict
from paceline.cost.this_machine import this_machine
from paceline.planning.machine_options import find_machine_options
from paceline.planning.objective import Objective
from paceline.planning.planning import make_plan
from paceline.simulation.on_cluster import simulate_on
from paceline.simulation.scaling import scale
from paceline.step.placement import processor_name
from paceline.strategy.presets import find_strategy
from paceline.workload import resolve
from tests.cost.invented import calibration
from tests.simulation.test_on_cluster import GPUS, here, prediction

SYNC, DOWNPOUR = (protocol_of(find_strategy(name)) for name in ("sync", "downpour"))
KNOWN = (ExchangeCost(SYNC, 2, 0.01, 1e-6, 2), ExchangeCost(DOWNPOUR, 4, 0.02, 0.0, 2))


def outcome(strategy: str, workers: int, cores: int = 2, machine: Machine | None = None, **changes):
    made = prediction(spread=0.05, exchange=KNOWN, **changes)
    return simulate_on(
        made, machine or here(cores), workers, find_strategy(strategy), network=None, workers_per_machine=workers
    )  # fmt: skip


def test_a_step_lasts_as_long_as_it_did():
    found = outcome("sync", 2)
    assert found.calibrated and found.step_s == pytest.approx(0.1 + 0.01 + 1e-6 * 1000)
    assert found.waiting_share + found.communication_share == pytest.approx(0.011 / found.step_s)
    assert found.epoch_s == pytest.approx(500 * found.step_s) and found.bound == "compute"


def test_more_workers_than_cores_share_them():
    found = outcome("downpour", 4)
    assert found.calibrated and found.step_s == pytest.approx(2 * 0.1 + 0.02)
    assert found.efficiency == pytest.approx(0.1 / 0.22)


@pytest.mark.parametrize(
    ("strategy", "workers", "cores"), [("sync", 4, 2), ("downpour", 2, 2), ("sync", 2, 4), ("sync", 1, 2)]
)
def test_what_was_not_tried_is_simulated(strategy, workers, cores):
    found = outcome(strategy, workers, cores)
    assert not found.calibrated
    assert found == replace(outcome(strategy, workers, cores), calibrated=False)


def test_another_period_other_machines_and_gpus_are_not_what_was_tried():
    machine = Machine("node", here(2).devices, network=Link("wire", 1e-4, 1e9))
    apart = simulate_on(prediction(exchange=KNOWN), machine, 2, find_strategy("sync"), network=machine.network)
    assert apart.machines == 2 and not apart.calibrated
    changed = find_strategy("sync", push_every=2, fetch_every=2)
    often = simulate_on(prediction(exchange=KNOWN), here(2), 2, changed, network=None, workers_per_machine=2)
    assert not often.calibrated
    assert not outcome("sync", 2, machine=GPUS, device="card", threads=0).calibrated


def test_a_server_s_time_that_is_given_goes_first():
    given = simulate_on(
        prediction(exchange=KNOWN), here(2), 2, find_strategy("sync"), network=None, workers_per_machine=2, server_s=0.5
    )  # fmt: skip
    assert not given.calibrated and given.step_s > 0.5


# This machine, once it is calibrated


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its name; it has two cores, and sync and downpour were tried with two workers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tried = (ExchangeCost(SYNC, 2, 4e-3, 0.0), ExchangeCost(DOWNPOUR, 2, 1e-3, 0.0))
    made = replace(
        calibration(step_overheads={"flat": StepOverheads()}), device_name=processor_name(), cores=2, exchange=tried,
        memory_bytes=8 << 30,
    )  # fmt: skip
    record.save(made, calibration_path(made.device_name))
    return made.device_name


WORKLOAD = resolve("mlp", {"data": "synthetic:1x28x28/10:6400", "batch": 64, "device": "cpu"})


def test_simulating_planning_and_predicting_agree(calibrated):
    alone = predict(replace(WORKLOAD, threads=1))
    expected_s = 50 * (alone.iteration_s + 4e-3)
    machine = this_machine("cpu")
    (found,) = scale(WORKLOAD, machine, find_strategy("sync"), [2], per_machine=2).machines[0].outcomes
    assert found.calibrated and found.epoch_s == pytest.approx(expected_s)
    plan = make_plan(WORKLOAD, find_machine_options("here"), Objective(epochs=1), strategies=("sync", "downpour"))
    both = [o for o in plan.simulated if o.candidate.workers == 2 and o.candidate.batch == 64]
    times = {one.candidate.strategy.name: one.time_s for one in both if one.candidate.precision == "float32"}
    assert times.get("sync", expected_s) == pytest.approx(expected_s) and plan.currency == "machine hours"


def test_a_cluster_file_s_device_of_this_name_is_this_machine(calibrated):
    by_name = predict(WORKLOAD, Device(calibrated, "cpu", cores=1))
    assert by_name.basis == "calibrated here" and by_name.threads == 1
    assert [cost.cores for cost in by_name.exchange] == [2, 2]
    machine = Machine("mine", (DeviceCount(Device(calibrated, "cpu", cores=1), 2),), vcpus=2)
    found = simulate_on(by_name, machine, 2, find_strategy("downpour"), network=None, workers_per_machine=2)
    assert found.calibrated and found.step_s == pytest.approx(by_name.iteration_s + 1e-3)


def test_a_larger_machine_of_the_same_name_is_another_one(calibrated):
    other = predict(WORKLOAD, Device(calibrated, "cpu", Peak(float32=5e12), cores=64))
    assert other.basis != "calibrated here" and other.exchange == () and math.isfinite(other.iteration_s)
