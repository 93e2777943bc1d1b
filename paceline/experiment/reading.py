"""Reads an experiment from a TOML file. Published numbers may be in a CSV file beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from paceline.errors import InputError, located, nearest
from paceline.experiment.experiment import EMPTY_GRID, Experiment
from paceline.experiment.keys import flattened, section_of
from paceline.experiment.random_search import RandomSearch
from paceline.results.comparison_rows import PublishedNumber
from paceline.results.csv_text import read_cells
from paceline.settings import read, read_any, read_toml, settings_of

KEYS = (
    "name", "title", "source", "notes", "kind", "repetitions", "seed", "timeout", "checkpoints", "workload", "strategy",
    "run", "grid", "random", "quick", "published",
)  # fmt: skip


def read_experiment(path: str | Path) -> Experiment:
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a directory: name the TOML file of an experiment, or `resume={str(path)!r}`")
    if path.suffix != ".toml":
        raise InputError(f"{path} should be a TOML file, its name ending in .toml")
    table = read_toml(path)  # its errors name the file
    with naming(path):
        return experiment_of(table, path.stem, path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors name the file, and keys instead of command-line options."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {str(error).replace('`', '')}") from error


def experiment_of(table: Mapping[str, Any], name: str = "experiment", folder: Path = Path()) -> Experiment:
    """From a parsed TOML table. A file of published numbers is searched for in `folder`."""
    for key in table:
        if key not in KEYS:
            raise InputError(f"an experiment has no {key!r}: {_place_of(key)}")
    _check_plain(table, "")
    given = dict(table)
    for section in ("workload", "strategy", "run", "random", "quick"):
        if not isinstance(given.get(section, {}), dict):
            raise InputError(f"{section}={given[section]!r:.60} should be a table, [{section}]")
    if given.get("grid") == []:
        raise InputError(EMPTY_GRID)
    if "kind" in given:
        if "kind" in given.get("run", {}):
            raise InputError("kind is given twice, once in [run]")
        given["run"] = {"kind": given.pop("kind"), **given.get("run", {})}
    source = given.pop("source", "")
    given["published"] = read_published(given.get("published", []), folder, source)
    given["timeout_s"] = given.pop("timeout", None)
    if "random" in given:
        given["random"] = _search(**given["random"])
    made = Experiment(**{"name": name, **given})
    return replace(made, notes=(f"Source: {source}.", *made.notes)) if source else made


def _place_of(key: str) -> str:
    """Where a setting belongs that was written outside its section."""
    section = section_of(key.replace("-", "_"))
    return f"it belongs in [{section}], or in [grid] as a list" if section else nearest(key, KEYS)


def _search(*, trials: Any = None, seed: Any = 0, options: Any = None, **draws: Any) -> RandomSearch:
    if trials is None:
        raise InputError("[random] needs trials = N: how many settings are drawn")
    if isinstance(options, dict):  # a table of draws, not a draw
        draws |= {f"options.{key}": draw for key, draw in options.items()}
    elif options is not None:
        draws["options"] = options
    return RandomSearch(trials, seed, draws)


def _check_plain(value: Any, where: str) -> None:
    """Rejects dates, which records cannot hold."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, where)
    elif isinstance(value, datetime | date | time):
        raise InputError(f"{where}={value} is a date: write it as text")


def read_published(given: Any, folder: Path, source: Any = "") -> tuple[PublishedNumber, ...]:
    """From a list of tables, or from a CSV file beside the experiment. `source` is the default source."""
    if not isinstance(source, str):
        raise InputError(f"source={source!r:.60} should be text")
    if isinstance(given, dict):
        given = given["file"] if set(given) == {"file"} else [given]
    if isinstance(given, str):
        found = {f"published: {given} line {line}": row for line, row in enumerate(_rows(folder / given), 2)}
    elif isinstance(given, list):
        found = {f"[[published]] {number}": entry for number, entry in enumerate(given, 1)}
    else:
        raise InputError(f"published={given!r:.60} should be a list of tables, or the name of a CSV file")
    return tuple(_published(entry, place, source) for place, entry in found.items())


def _published(entry: Any, place: str, source: str) -> PublishedNumber:
    if not isinstance(entry, dict):
        raise InputError(f"{place} is {entry!r:.60}; it should be a table with label, value, unit and source")
    with located(f"{place}: "):
        given = read(PublishedNumber, entry, InputError, "a published number")
        if missing := [key for key in ("label", "value") if key not in given]:
            raise InputError(f"{missing[0]} is missing")
        found = PublishedNumber(**{"source": source, **given})
    return replace(found, where=flattened(found.where, f"{place}: where"))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Columns that are not keys are settings that the number applies to."""
    header, rows = read_cells(path)
    known = settings_of(PublishedNumber)
    for row in rows:
        cells = {key: text for key, text in zip(header, row, strict=True) if text}
        where = {key: read_any(text) for key, text in cells.items() if key not in known}
        yield {key: text for key, text in cells.items() if key in known} | {"where": where}
