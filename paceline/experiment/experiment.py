"""An experiment as data: settings that all runs share, settings that vary, and the number of repetitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from paceline.errors import InputError, located
from paceline.experiment.keys import check_value, flattened, section_of
from paceline.experiment.random_search import RandomSearch
from paceline.results.comparison_rows import PublishedNumber
from paceline.settings import Setting, check, setting

if TYPE_CHECKING:
    from paceline.results.outcome import PlannedRun

EMPTY_GRID = "[grid] is empty: give lists of values, e.g. batch = [32, 64]"
NOT_TO_VARY = {"seed": "repetitions = N gives every setting the seeds one after another"}
MAY_CHANGE = ("name", "title", "notes", "published")
"""Fields that do not affect the runs and may change before an experiment is resumed."""
NOT_SETTINGS = ("repetitions", "trials", "notes", "grid")  # keys of `quick` that are not settings of runs


@dataclass(frozen=True)
class Experiment:
    """Keys of `workload`, `strategy` and `run` are those of the command line; a grid has lists of values."""

    name: str
    title: str = setting("")
    notes: tuple[str, ...] = ()
    """Sentences shown in the report."""
    workload: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    """kind (train, measure or simulate), step, steps, iterations, measure."""
    grid: tuple[dict[str, Any], ...] = ()
    """Blocks of lists of values; each block gives one run per combination."""
    random: RandomSearch | None = None
    repetitions: int = setting(1, least=1)
    seed: int = setting(0, least=0)
    """Seed of the order of the runs."""
    timeout_s: float | None = None
    """A run that takes longer fails."""
    checkpoints: bool = setting(True)
    """Whether the trained parameters of each run are kept."""
    quick: dict[str, Any] = field(default_factory=dict)
    """Settings, repetitions, trials, grid and notes of the quick version."""
    is_quick: bool = False
    published: tuple[PublishedNumber, ...] = ()

    def __post_init__(self) -> None:
        self._check_own()
        for section in ("workload", "strategy", "run"):
            given = flattened(getattr(self, section), f"[{section}]", section)
            _check_values(f"[{section}]", given)
            object.__setattr__(self, section, given)
        object.__setattr__(self, "grid", _grid(self.grid))
        if self.random is not None:
            draws = flattened(self.random.draws, "[random]")
            object.__setattr__(self, "random", replace(self.random, draws=draws))
            for key, values in self.random.extremes().items():
                _check_varied("[random]", key, values)
                if any(key in block for block in self.grid):
                    raise InputError(f"{key} is in both [grid] and [random]: keep one of them")
        self._check_quick()

    def _check_own(self) -> None:
        check(self, InputError)
        Setting("name", str, "").read(self.name)
        object.__setattr__(self, "notes", _sentences("notes", self.notes))
        if not re.search(r"\w", self.name):
            raise InputError(f"name={self.name!r} should have a letter or a digit")
        limit_s = self.timeout_s
        if limit_s is not None and (isinstance(limit_s, bool) or not isinstance(limit_s, int | float) or limit_s <= 0):
            raise InputError(f"timeout={limit_s!r:.60} should be a number of seconds above 0")

    def _check_quick(self) -> None:
        _sentences("[quick] notes", self.quick.get("notes", ()))
        _grid(self.quick.get("grid", ()))
        for key, value in self._quick_settings.items():
            several = isinstance(value, list) and any(key in block for block in self.grid)
            for item in value if several else [value]:
                _check_values("[quick]", {key: item})
            if several and not value:
                raise InputError(f"[quick] {key} is an empty list")
        if "trials" in self.quick and self.random is None:
            raise InputError("[quick] trials needs a [random]")
        for key in ("repetitions", "trials"):
            Setting(f"[quick] {key}", int, 1, least=1).read(self.quick.get(key, 1))

    @property
    def _quick_settings(self) -> dict[str, Any]:
        return flattened({key: each for key, each in self.quick.items() if key not in NOT_SETTINGS}, "[quick]")

    def quickly(self) -> Experiment:
        """The quick version: the settings of `quick` replace the others, and its notes are appended."""
        if self.is_quick:
            return self
        if not self.quick:
            raise InputError(f"{self.name} has no section [quick]: add one with smaller values, e.g. epochs = 1")
        changes: dict[str, Any] = {"is_quick": True, "repetitions": self.quick.get("repetitions", self.repetitions)}
        changes["notes"] = (*self.notes, *self.quick.get("notes", ()))
        search = self.random and replace(self.random, trials=self.quick.get("trials", self.random.trials))
        grid = [dict(block) for block in _grid(self.quick.get("grid", ())) or self.grid]
        base: dict[str, Any] = {"workload": dict(self.workload), "strategy": dict(self.strategy), "run": dict(self.run)}
        for key, value in self._quick_settings.items():
            varied = [block for block in grid if key in block]
            for block in varied:
                block[key] = value if isinstance(value, list) else [value]
            if search is not None and key in search.draws:
                search = replace(search, draws={**search.draws, key: {"choice": [value]}})
            elif not varied:
                base[str(section_of(key))][key] = value
        return replace(self, **changes, **base, grid=tuple(grid), random=search)

    def runs(self) -> list[PlannedRun]:
        """All runs. The id of a run depends only on its settings and repetition."""
        from paceline.experiment.planning import plan_runs

        return plan_runs(self)


def _sentences(name: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(note, str) for note in given):
        raise InputError(f"{name}={given!r:.60} should be a list of sentences")
    return tuple(given)


def _grid(given: Any) -> tuple[dict[str, list[Any]], ...]:
    if not isinstance(given, Mapping | list | tuple):
        raise InputError(f"grid={given!r:.60} should be a table, [grid], or several, [[grid]]")
    return tuple(_block(block) for block in ((given,) if isinstance(given, Mapping) else given))


def _block(block: Any) -> dict[str, list[Any]]:
    if not isinstance(block, Mapping) or not block:
        raise InputError(EMPTY_GRID)
    found = {}
    for key, value in flattened(block, "[grid]").items():
        values = list(value) if isinstance(value, list | tuple) else [value]
        if not values:
            raise InputError(f"[grid] {key.replace('_', '-')} is an empty list")
        _check_varied("[grid]", key, values)
        found[key] = values
    return found


def _check_varied(where: str, key: str, values: list[Any]) -> None:
    if key in NOT_TO_VARY:
        raise InputError(f"{where} {key} is not for a grid: {NOT_TO_VARY[key]}")
    for value in values:
        _check_values(where, {key: value})


def _check_values(where: str, settings: Mapping[str, Any]) -> None:
    with located(f"{where} "):
        for key, value in settings.items():
            check_value(key, value)


def changed(before: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> list[str]:
    """Differences between two experiments, given as JSON, in words; fields that may change are ignored."""
    found = []
    for key in dict.fromkeys((*before, *now)):
        if not where and key in MAY_CHANGE:
            continue
        old, new, name = before.get(key), now.get(key), f"{where}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            found += changed(old, new, f"{name}.")
        elif key == "grid" and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            for number, (a, b) in enumerate(zip(old, new, strict=True), 1):
                found += changed(a, b, "grid." if len(old) == 1 else f"grid {number}.")
        elif old != new:
            was, becomes = ("nothing" if value is None else f"{value!r:.60}" for value in (old, new))
            found.append(f"{name} was {was} and is {becomes}")
    return found
