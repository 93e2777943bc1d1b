"""The keys of an experiment: the section that each belongs to, and the runs that it applies to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.errors import InputError, nearest
from paceline.settings import pick
from paceline.strategy.presets import find_strategy
from paceline.training.distributing import build_cluster
from paceline.training.settings import (
    DISTRIBUTION_RECORDS,
    RUNS,
    SCHEMA,
    ClusterSettings,
    ParallelSettings,
    RunSettings,
    keys_of,
)
from paceline.training.starting import Setup
from paceline.workload import Workload, is_option

ALONE = "none"  # in place of a strategy: train in one process
SECTIONS = {
    "run": keys_of(RunSettings),
    "workload": keys_of(Workload),
    "strategy": keys_of(*DISTRIBUTION_RECORDS),
}


def section_of(key: str) -> str | None:
    """The section of an experiment's file that a key belongs to."""
    return "workload" if is_option(key) else next((name for name, keys in SECTIONS.items() if key in keys), None)


def flattened(table: Mapping[str, Any], where: str, section: str | None = None) -> dict[str, Any]:
    """Keys in one spelling, e.g. `fetch_every` for `fetch-every`; a table of options becomes `options.KEY`."""
    found: dict[str, Any] = {}
    for written, value in table.items():
        key = written if is_option(written) else written.replace("-", "_")
        inner = {f"options.{k}": v for k, v in value.items()} if key == "options" and isinstance(value, dict) else None
        home = section_of(key)
        if home is None:
            raise InputError(
                f"{where} has no key {written!r}: {nearest(key, SECTIONS[section] if section else SCHEMA)}"
            )
        if section is not None and home != section:
            raise InputError(f"{where} {written} belongs to [{home}]")
        for name, item in (inner or {key: value}).items():
            if name in found:
                raise InputError(f"{where} {name} is given twice")
            found[name] = item
    return found


def check_value(key: str, value: Any) -> None:
    """Rejects a value that is not valid in any run."""
    if is_option(key):
        return
    read = SCHEMA[key].parse(value) if isinstance(value, str) else SCHEMA[key].read(value)
    if key in keys_of(ClusterSettings):
        build_cluster(ClusterSettings(**{key: read}))
    elif key == "strategy" and value != ALONE:
        find_strategy(value)


def is_alone(given: Mapping[str, Any]) -> bool:
    """Whether it runs in one process. Workers without a strategy are synchronous; a divided network needs several."""
    if ParallelSettings(**pick(ParallelSettings, given)).divides:
        return False
    if "strategy" in given:
        return bool(given["strategy"] == ALONE)
    return "workers" not in given


def applicable(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that apply to a run of this kind, strategy and driver."""
    kind, without = given["kind"], set()
    if kind == "train":
        driver = given.get("driver", "auto")
        kind = "alone" if is_alone(given) else "local" if driver == "auto" else driver
    if kind == "feed" and not given.get("devices", RunSettings.devices):
        without = {"refresh", "compute"}
    used = {key for key, each in SCHEMA.items() if kind in (each.runs or RUNS)} - without
    used |= {"strategy"} if kind == "alone" else set()
    return {key: value for key, value in given.items() if is_option(key) or key in used}


def why_without_effect(key: str) -> str:
    if {"local", "virtual"} <= {*SCHEMA[key].runs}:
        return 'it needs workers or a strategy, e.g. strategy = "downpour"'
    return f"it is for {' or '.join(RUNS[run] for run in SCHEMA[key].runs)}"


def setup_of(settings: Mapping[str, Any]) -> Setup:
    if is_alone(settings):
        return Setup()
    given = {key: value for key, value in settings.items() if section_of(key) == "strategy"}
    if given.get("strategy") == ALONE:  # a divided network has no strategy
        del given["strategy"]
    return Setup.of({**given, "driver": "virtual"} if settings["kind"] == "simulate" else given)
