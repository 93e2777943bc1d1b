"""Running a plan on this machine, and errors if it cannot run here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import InputError
from paceline.planning.machine_options import find_machine_options, options_of
from paceline.planning.objective import Objective
from paceline.planning.planning import make_plan
from paceline.planning.running import Hardware, planned_settings
from paceline.strategy.presets import PRESETS, find_strategy
from tests.planning.invented import WORKLOAD, InventedPredictions, invented_cluster

LAPTOP = Hardware((), (), "Some CPU @ 2.4 GHz")
FOUR = Hardware(("NVIDIA A100-SXM4-40GB",) * 4, (42_400_000_000,) * 4, "AMD EPYC 7543")
EIGHT = replace(FOUR, gpus=FOUR.gpus * 2, gpu_memory_bytes=FOUR.gpu_memory_bytes * 2)


@pytest.fixture(scope="module")
def plan():
    """For eight workers on one machine."""
    predictions = InventedPredictions(samples=1_000_000, flops=1e11, parameter_bytes=1_000_000)
    made = make_plan(
        WORKLOAD, find_machine_options("p4d.24xlarge"), Objective(epochs=2.5, budget=1e9), predict=predictions
    )
    eight = next(one for one in made.simulated if one.candidate.workers == 8)
    return replace(made, pick=eight)


def test_the_plans_settings_are_used(plan):
    settings, strategy, workers = planned_settings(plan, EIGHT, device=None, workers=None)
    pick = plan.pick.candidate
    assert workers == 8 and strategy == pick.strategy
    assert (settings["batch"], settings["precision"], settings["device"]) == (pick.batch, pick.precision, "cuda")
    assert settings["epochs"] == 3, "two and a half are three"
    assert settings["network"] == WORKLOAD.network and settings["lr"] == WORKLOAD.lr


def test_a_missing_device_is_an_error_with_a_remedy(plan):
    with pytest.raises(InputError) as refused:
        planned_settings(plan, LAPTOP, device=None, workers=None)
    line = str(refused.value)
    assert "8 workers on A100 40GB (p4d.24xlarge)" in line
    assert "this machine has no GPU (processor: Some CPU" in line and line.endswith("here with `device='cpu'`")
    settings, _, workers = planned_settings(plan, LAPTOP, device="cpu", workers=None)
    assert settings["device"] == "cpu" and workers == 8 and settings["precision"] != "tf32"


def test_too_few_devices_are_an_error_with_a_remedy(plan):
    with pytest.raises(
        InputError, match="this machine has only 4: run it on the planned hardware, or here with `workers=4`"
    ):
        planned_settings(plan, FOUR, device=None, workers=None)
    _, strategy, workers = planned_settings(plan, FOUR, device=None, workers=4)
    assert workers == 4 and strategy is not None
    strategy.check(4)


def test_another_device_of_that_name_is_another_device(plan):
    eighty = replace(EIGHT, gpu_memory_bytes=(85_000_000_000,) * 8)
    with pytest.raises(InputError, match="`device='cuda'`"):
        planned_settings(plan, eighty, device=None, workers=None)


def test_several_machines_are_not_this_one(plan):
    candidate = replace(plan.pick.candidate, workers=16)
    several = replace(plan, pick=replace(plan.pick, candidate=candidate, machines=2))
    with pytest.raises(
        InputError, match=r"2 × p4d.24xlarge.*a plan is carried out on one machine.*or here with `workers=8`"
    ):
        planned_settings(several, EIGHT, device=None, workers=None)


def test_one_worker_needs_no_strategy(plan):
    settings, strategy, workers = planned_settings(plan, EIGHT, device=None, workers=1)
    assert strategy is None and workers == 1 and settings["device"] == "cuda"


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("workers", [2, 3, 4, 6])
def test_a_strategy_fits_another_number_of_workers(plan, name, workers):
    chosen = find_strategy(name, groups=4) if name == "mixed" else PRESETS[name]
    changed = replace(plan, pick=replace(plan.pick, candidate=replace(plan.pick.candidate, strategy=chosen)))
    _, strategy, _ = planned_settings(changed, EIGHT, device=None, workers=workers)
    assert strategy is not None
    strategy.check(workers)


def test_a_processor_is_known_by_its_name():
    cluster = invented_cluster(0)
    made = make_plan(WORKLOAD, options_of(cluster), Objective(epochs=1), predict=InventedPredictions())
    pick = replace(made.pick, candidate=replace(made.pick.candidate, device="EPYC 7543", workers=1))
    settings, _, _ = planned_settings(replace(made, pick=pick), FOUR, device=None, workers=None)
    assert settings["device"] == "cpu"
