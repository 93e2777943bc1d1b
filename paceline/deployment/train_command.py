"""The command that trains as a plan's pick says, with actors of a Ray cluster as its workers."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from paceline.errors import InputError
from paceline.held_objects import is_held
from paceline.planning.plan import Plan
from paceline.planning.running import Hardware, planned_settings
from paceline.settings import read_any, settings_of
from paceline.strategy.presets import PRESETS
from paceline.strategy.strategy import Strategy
from paceline.training.settings import SCHEMA
from paceline.workload import Workload, from_network, with_settings

ELSEWHERE = Hardware((), (), "")
"""The plan is carried out on the cluster, whatever this machine has."""


def train_command(plan: Plan, *, on_gpu: bool, worker_cpus: float, out: str) -> list[list[str]]:
    """The words of the command; an option and its value are one group."""
    pick = plan.pick.candidate
    planned, strategy, workers = planned_settings(
        plan, ELSEWHERE, device="cuda" if on_gpu else "cpu", workers=pick.workers
    )
    assert strategy is not None, "a plan with one worker has no cluster"
    workload = with_settings(plan.workload, planned)
    return [
        ["paceline", "train", workload.network],
        *_workload_options(workload),
        *_strategy_options(strategy, workers),
        *_on_ray(worker_cpus),
        ["--out", out],
    ]


def resume_command(*, worker_cpus: float, out: str) -> list[list[str]]:
    return [["paceline", "train", "--resume", out], *_on_ray(worker_cpus)]


def _on_ray(worker_cpus: float) -> list[list[str]]:
    return [["--driver", "ray"], ["--address", "auto"], ["--set", f"worker_cpus={worker_cpus:g}"]]


def _workload_options(workload: Workload) -> list[list[str]]:
    """What differs from the workload that the name of its network stands for."""
    for name in settings_of(Workload):
        if isinstance(value := getattr(workload, name), str) and is_held(value):
            raise InputError(
                f"the plan's {name} was passed as a Python object; make the plan with module:name, which the nodes of "
                "the cluster can import"
            )
    usual = from_network(workload.network, {})
    given = {"optimizer": workload.optimizer}  # another one than the usual changes other defaults, too
    base = {**vars(from_network(workload.network, given)), "optimizer": usual.optimizer}
    changed = [name for name in settings_of(Workload) if getattr(workload, name) != base[name]]
    found = [_option(name, getattr(workload, name)) for name in changed if name != "options"]
    return found + [["--set", f"options.{key}={_toml(key, value)}"] for key, value in workload.options.items()]


def _strategy_options(strategy: Strategy, workers: int) -> list[list[str]]:
    """The preset of the strategy's name, or the one nearest to a custom strategy, and what differs from it."""
    base = PRESETS.get(strategy.name) or PRESETS["sync" if strategy.groups == 1 else "downpour"]
    found = [["--strategy", base.name], ["--workers", str(workers)]]
    for field in dataclasses.fields(Strategy):
        value = getattr(strategy, field.name)
        if field.name == "name" or value == getattr(base, field.name):
            continue
        if field.name == "groups" and value is not None:
            value = f"{value}x{workers // value}"
        found.append(_option(field.name, value))
    return found


def _option(name: str, value: Any) -> list[str]:
    """As an option of `paceline train` if there is one, else with --set."""
    match value:
        case None:
            text = "none"
        case bool():
            text = str(value).lower()
        case tuple():
            text = ",".join(map(repr, value))
        case _:
            text = str(value)
    each = SCHEMA[name]
    return [each.option, text] if "train" in each.verbs else ["--set", f"{name}={text}"]


def _toml(key: str, value: Any) -> str:
    """The text that is read back as this value."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if read_any(text) != value:
        raise InputError(
            f"the plan's options.{key}={value!r:.60} cannot be written on a command line: use module:function"
        )
    return text
