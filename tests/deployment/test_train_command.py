"""The command in a deployment file, given to the command line, trains exactly what the plan picked."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from paceline.built_in import BUILT_IN
from paceline.deployment.planned_cluster import PlannedCluster
from paceline.deployment.settings import DeploymentSettings
from paceline.errors import InputError
from paceline.planning.candidates import STRATEGIES
from paceline.planning.plan import Plan
from paceline.strategy.presets import PRESETS
from paceline.strategy.strategy import Strategy
from paceline.workload import with_settings
from tests.deployment.captured import Captured, captured
from tests.deployment.plans import planned


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def capture(monkeypatch):
    def of(plan: Plan, **settings: object) -> Captured:
        words = PlannedCluster(plan, DeploymentSettings(**settings)).command("runs/one")
        return captured(" ".join(map(shlex.join, words)), monkeypatch)

    return of


def picked(plan: Plan, device: str = "cuda"):
    """The workload as the pick has it."""
    pick = plan.pick.candidate
    return with_settings(
        plan.workload, {"batch": pick.batch, "precision": pick.precision, "epochs": 3, "device": device}
    )


@pytest.mark.parametrize("network", BUILT_IN)
def test_every_built_in_network(capture, network):
    plan = planned(network=network, precision="bfloat16")
    found = capture(plan)
    assert found.workload == picked(plan)
    assert found.setup.driver.driver == "ray" and found.setup.driver.address == "auto"


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adamw", "lr": 3e-4, "betas": (0.8, 0.99), "eps": 1e-7, "weight_decay": 0.0},
        {"optimizer": "sgd", "schedule": "warm-up:1+cosine", "clip_norm": 1.5, "l1": 1e-6, "seed": 7, "threads": 3},
        {"optimizer": "torch.optim:RAdam", "schedule": "constant"},
        {"data": "csv:my data/it's $HOME.csv?target=y", "loss": "squared", "accumulate": 4, "top": 1},
        {"activation": "relu", "dropout": 0.25, "init": "small:0.02", "data": "digits:500"},
        {"options": {"hidden": 128, "layers": [64, 32], "bias": False, "kind": "wide"}},
    ],
)  # fmt: skip
def test_whatever_the_workload_sets(capture, settings):
    plan = planned(network="dnn", **settings)
    assert capture(plan).workload == picked(plan)


def test_a_network_of_the_users(capture, tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text("from torch import nn\ndef build():\n    return nn.Linear(64, 10)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = planned()
    plan = replace(plan, workload=replace(plan.workload, network="nets:build", optimizer="adam"))
    assert capture(plan).workload == picked(plan)


@pytest.mark.parametrize("name", PRESETS)
def test_every_strategy(capture, name):
    plan = planned(strategy=name)
    setup = capture(plan).setup
    assert (setup.strategy, setup.workers) == (PRESETS[name], 12)


@pytest.mark.parametrize(
    "strategy",
    [
        replace(PRESETS["mixed"], groups=4),
        replace(PRESETS["local-sgd"], push_every=50, fetch_every=50),
        replace(PRESETS["softsync"], softsync_n=3, overlap=False),
        replace(PRESETS["backup"], backup_workers=2, warm_start=10),
        replace(PRESETS["downpour"], server_optimizer="adagrad:0.5", staleness_bound=4, local_step=False),
    ],
    ids=lambda strategy: strategy.name,
)
def test_a_strategy_with_other_settings(capture, strategy):
    assert strategy.name in STRATEGIES
    assert capture(planned(strategy=strategy)).setup.strategy == strategy


@pytest.mark.parametrize("groups", [1, 3, None])
def test_a_custom_strategy_keeps_all_but_its_name(capture, groups):
    own = Strategy("mine", groups=groups, exchange="int8", push_every=2)
    found = capture(planned(strategy=own)).setup.strategy
    assert replace(found, name="mine") == own


def test_workers_share_the_machine_and_one_cpu_is_left(capture):
    assert capture(planned("g2-standard-48")).setup.driver.worker_cpus == 11  # (48 - 1) // 4
    assert capture(planned("n1-standard-8", workers_per_machine=8)).setup.driver.worker_cpus == 1
    assert capture(planned(), worker_cpus=2.5).setup.driver.worker_cpus == 2.5


def test_a_plan_for_cpus_trains_on_cpus(capture):
    plan = planned("c6i.32xlarge", workers_per_machine=2)
    found = capture(plan)
    assert found.workload == picked(plan, "cpu") and found.setup.driver.worker_cpus == 63


def test_a_run_is_continued_where_it_is_kept():
    words = PlannedCluster(planned(), DeploymentSettings(from_checkpoint=True)).command("/results/one")
    assert " ".join(map(shlex.join, words)) == (
        "paceline train --resume /results/one --driver ray --address auto --set worker_cpus=11"
    )


@pytest.mark.parametrize("value", [{"a": None}, "true"])
def test_what_a_command_line_cannot_say_is_refused(value):
    cluster = PlannedCluster(planned(options={"mine": value}), DeploymentSettings())
    with pytest.raises(InputError, match=r"options.mine=.* cannot be written on a command line"):
        cluster.command("runs/one")
