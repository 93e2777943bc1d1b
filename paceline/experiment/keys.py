"""Every key that an experiment may set: where it belongs, and to which runs it applies."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from paceline.errors import InputError, StrategyError, WorkloadError, nearest
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.training.distributing import REAL_ONLY, ClusterWords, DriverWords, StrategyWords, check_types
from paceline.workload import STEPS, Workload, with_settings

KINDS = ("train", "measure", "simulate", "feed")
ALONE = "none"
"""In place of a strategy: one process, without any."""


def _names(record: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(record))


@dataclasses.dataclass(frozen=True)
class RunWords:
    """What kind of run it is, and how much of it there is."""

    kind: str = "train"
    step: str = "auto"
    steps: int = 100
    """Of each simulated worker, on average."""
    iterations: int = 200
    """That are measured."""
    measure: bool = False
    """Whether the layers of a training are measured meanwhile."""
    devices: int = 1
    """Stand-ins that are fed over one bus; 0: the network itself is, with images."""
    ahead: bool = True
    """Whether the next batch is fetched while a device computes."""
    refresh: float = 0.25
    """Seconds for which a device's next batch occupies the bus."""
    compute: float = 0.5
    """Seconds that a stand-in computes."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.kind not in KINDS:
            raise InputError(f"kind {self.kind!r} is unknown: {nearest(self.kind, KINDS)}")
        if self.step not in STEPS:
            raise InputError(f"step {self.step!r} is unknown: {nearest(self.step, STEPS)}")
        for name, least in (("steps", 1), ("iterations", 20), ("devices", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name}={getattr(self, name)} should be at least {least}")
        for name in ("refresh", "compute"):
            if not 0 < getattr(self, name) < 3600:
                raise InputError(f"{name}={getattr(self, name):g} should be seconds, above 0 and below an hour")


WORKLOAD = _names(Workload)
RUN = _names(RunWords)
CLUSTER = _names(ClusterWords)
DRIVER = _names(DriverWords)
STRATEGY = tuple(name for name in _names(StrategyWords) if name != "fields")
FIELDS = tuple(name for name in _names(Strategy) if name not in (*STRATEGY, "name"))
"""Of a strategy, beyond what the command line has options for."""
SECTIONS = {
    "run": RUN,
    "workload": WORKLOAD,
    "strategy": (*STRATEGY, *FIELDS, *CLUSTER, *DRIVER),
}
ALL = tuple(key for keys in SECTIONS.values() for key in keys)


def is_option(key: str) -> bool:
    """Whether it is one of the options of a built-in network, as `options.hidden`."""
    return key.startswith("options.") and len(key) > len("options.")


def is_of_workload(key: str) -> bool:
    return key in WORKLOAD or is_option(key)


def flattened(table: Mapping[str, Any], where: str, section: str | None = None) -> dict[str, Any]:
    """Known keys in one spelling, `fetch-every` and `fetch_every` alike; a table of options becomes `options.KEY`."""
    found: dict[str, Any] = {}
    for written, value in table.items():
        key = written if is_option(written) else written.replace("-", "_")
        inner = {f"options.{k}": v for k, v in value.items()} if key == "options" and isinstance(value, dict) else None
        known = SECTIONS[section] if section else ALL
        if inner is None and key not in known and not (is_option(key) and "network" in known):
            raise InputError(f"{where} {_unknown(written, key, known)}")
        for name, item in (inner or {key: value}).items():
            if name in found:
                raise InputError(f"{where} {name} is given twice")
            found[name] = item
    return found


def _unknown(written: str, key: str, known: tuple[str, ...]) -> str:
    home = next((section for section, keys in SECTIONS.items() if key in keys), None)
    if home is not None:
        return f"{written} belongs to [{home}]"
    return f"has no key {written!r}: {nearest(written, [name.replace('_', '-') for name in known])}"


def check_value(key: str, value: Any) -> None:
    """Refuses a value that its key could have in no run."""
    if isinstance(value, dict):
        raise InputError(f"{key.replace('_', '-')}={value!r:.60} should not be a table")
    if is_of_workload(key):
        if key == "network" and not isinstance(value, str):
            raise WorkloadError(f"network={value!r:.60} should be text")
        usual = Workload(optimizer="adamw") if key == "weight_decay" else Workload()
        with_settings(usual, {key: value})
    elif key in RUN:
        RunWords(**{key: value})
    elif key in DRIVER:
        DriverWords(**{key: value})
    elif key in CLUSTER:
        ClusterWords(**{key: cluster_value(key, value)}).build()
    elif key in STRATEGY:
        StrategyWords(**{key: value})
        if key == "strategy" and value != ALONE:
            find_strategy(value)
    else:
        _check_field(key, value)


def _check_field(key: str, value: Any) -> None:
    kinds = typing.get_args(typing.get_type_hints(Strategy)[key]) or (typing.get_type_hints(Strategy)[key],)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if float in kinds and number:
        return
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        what = {bool: "true or false", int: "a whole number", float: "a number"}.get(kinds[0], "text")
        raise StrategyError(f"{key.replace('_', '-')}={value!r} should be {what}")


def cluster_value(key: str, value: Any) -> Any:
    """Speeds are a list in a file, and text on the command line."""
    if key == "speeds" and isinstance(value, list):
        return ",".join(str(item) for item in value)
    return value


def is_alone(given: Mapping[str, Any]) -> bool:
    """Whether it is one process: workers without a strategy are synchronous ones."""
    if "strategy" in given:
        return bool(given["strategy"] == ALONE)
    return "workers" not in given


def applicable(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of `given` a run of its kind, strategy and driver is made of; the rest has no meaning for it."""
    kind = given["kind"]
    keys: set[str] = {"kind"}
    distribution = {*STRATEGY, *FIELDS}
    if kind == "simulate":
        keys |= {"steps", *distribution, *CLUSTER}
    elif kind == "measure":
        keys |= {"iterations", "step"}
    elif kind == "feed":
        keys |= {"iterations", "devices", "ahead"}
        keys |= {"refresh", "compute"} if given.get("devices", RunWords.devices) else set()
    elif is_alone(given):
        keys |= {"strategy", "step", "measure"}
    elif given.get("driver") == "virtual":
        keys |= {*distribution, *CLUSTER, *(key for key in DRIVER if key not in REAL_ONLY)}
    else:
        keys |= {*distribution, *DRIVER, "measure"}
    return {key: value for key, value in given.items() if is_of_workload(key) or key in keys}


def why_without_effect(key: str) -> str:
    if key in ("steps", "iterations"):
        return f'it is for kind = "{"simulate" if key == "steps" else "measure"}"'
    if key in ("devices", "ahead", "refresh", "compute"):
        return 'it is for kind = "feed"'
    if key == "step":
        return "it is for training in one process, without a strategy"
    if key == "measure":
        return 'it is for trainings in one process or with driver = "local"'
    if key in CLUSTER:
        return 'it is simulated and needs driver = "virtual", or kind = "simulate"'
    if key in REAL_ONLY:
        return 'it is for real processes and needs driver = "local"'
    return 'it needs workers or a strategy, as strategy = "downpour"'
