"""Reads an experiment from a TOML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from paceline.errors import InputError
from paceline.experiment.experiment import Experiment, check_keys
from paceline.experiment.published import read_published
from paceline.experiment.random_search import RandomSearch
from paceline.settings import read_toml

KEYS = (
    "name", "title", "notes", "kind", "repetitions", "seed", "timeout", "checkpoints", "workload", "strategy", "run",
    "grid", "random", "quick", "published",
)  # fmt: skip


def read_experiment(path: str | Path) -> Experiment:
    """The experiment that a file describes; every error names the file."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a directory: name the TOML file of an experiment, or `resume={str(path)!r}`")
    if path.suffix != ".toml":
        raise InputError(f"{path} should be a TOML file, its name ending in .toml")
    table = read_toml(str(path), InputError)  # its errors name the file themselves
    with naming(path):
        return experiment_of(table, path.stem, path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors name the file, and do not speak of options of a command line."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {str(error).replace('`', '')}") from error


def experiment_of(table: Mapping[str, Any], name: str = "experiment", folder: Path = Path()) -> Experiment:
    """From a table as TOML has it; a file of published numbers is looked for in `folder`."""
    check_keys(table, KEYS)
    _check_plain(table, "")
    given = dict(table)
    for section in ("workload", "strategy", "run", "random", "quick"):
        if not isinstance(given.get(section, {}), dict):
            raise InputError(f"{section}={given[section]!r:.60} should be a table, [{section}]")
    grid = given.pop("grid", ())
    if not isinstance(grid, dict | list | tuple):
        raise InputError(f"grid={grid!r:.60} should be a table, [grid], or several, [[grid]]")
    if isinstance(grid, list) and not grid:
        raise InputError("[grid] is empty: give lists of values, as batch = [32, 64]")
    if "kind" in given:
        if "kind" in given.get("run", {}):
            raise InputError("kind is given twice, once in [run]")
        given["run"] = {"kind": given.pop("kind"), **given.get("run", {})}
    search = given.pop("random", None)
    published = read_published(given.pop("published", []), folder)
    timeout_s = given.pop("timeout", None)
    return Experiment(
        **{"name": name, **given},
        grid=(grid,) if isinstance(grid, dict) else tuple(grid),
        random=_search(search) if search is not None else None,
        timeout_s=timeout_s,
        published=published,
    )


def _search(table: Mapping[str, Any]) -> RandomSearch:
    draws = dict(table)
    if "trials" not in draws:
        raise InputError("[random] needs trials = N: how many settings are drawn")
    trials, seed = draws.pop("trials"), draws.pop("seed", 0)
    options = draws.get("options")
    if isinstance(options, dict):  # a table of draws, not a draw
        del draws["options"]
        draws |= {f"options.{key}": draw for key, draw in options.items()}
    return RandomSearch(trials, seed, draws)


def _check_plain(value: Any, where: str) -> None:
    """What a record cannot hold is refused; TOML has dates."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, where)
    elif isinstance(value, datetime | date | time):
        raise InputError(f"{where}={value} is a date: write it as text")
