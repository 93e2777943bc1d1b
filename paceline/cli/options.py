"""Command-line options made from the settings schema: some have their own option, the others use `--set`."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from paceline.errors import InputError, nearest
from paceline.settings import Setting, read_any, settings_of
from paceline.training.settings import SCHEMA
from paceline.workload import Workload, is_option

OUTPUT, OTHER = "Output", "Other settings"  # panels of the help
RUNS = {"train": {"alone", "local", "ray", "virtual"}, "simulate": {"simulate"}, "measure": {"measure"}}
"""The kinds of run that a verb makes; other verbs take the settings of a workload only."""


def given_path(text: str | Path) -> Path:
    """A path as typed. An empty one is an error: it would mean the current directory."""
    if not str(text):
        raise typer.BadParameter("it is empty")
    return Path(text)


def option(help: str, metavar: str = "TEXT") -> Any:
    return typer.Option(metavar=metavar, help=help)


def flag(name: str, help: str) -> Any:
    return typer.Option(f"--{name}", help=help)


def path_option(help: str, metavar: str = "DIR", panel: str | None = None) -> Any:
    return typer.Option(metavar=metavar, parser=given_path, help=help, rich_help_panel=panel)


OutOption = Annotated[Path | None, path_option("Directory for the results.", "DIR", OUTPUT)]
ResumeOption = Annotated[Path | None, path_option("Resume the run or experiment in this directory.", "DIR", OUTPUT)]
DataDirOption = Annotated[Path | None, path_option("Directory where data sets are stored.", "DIR", OUTPUT)]
JobsOption = Annotated[int, option("Number of runs at a time; they share the cores.", "N")]
TrustOption = Annotated[bool, flag("trust", "Run the user code that a saved run or plan refers to, wherever it is.")]
RetryOption = Annotated[bool, flag("retry", "With --resume: repeat failed runs.")]
WORKLOAD = "A built-in name (see paceline models), a TOML file, or module:function."
NAMED = ("network", "kind")  # given by an argument and by the verb itself
METAVARS: dict[Any, str] = {int: "N", float: "NUMBER"}


def takes_settings(verb: str, record: type | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options of a verb to its command, which receives them in one dictionary, `given`.

    They are the settings of `record`, or those that all verbs share.
    """
    if record is not None:
        options = known = settings_of(record)
    else:
        options = {name: each for name, each in SCHEMA.items() if verb in each.verbs}
        runs = RUNS.get(verb, set())
        shared = {name: each for name, each in SCHEMA.items() if name not in NAMED}
        known = options | {name: each for name, each in shared.items() if not each.runs or {*each.runs} & runs}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        hints = typing.get_type_hints(command, include_extras=True)
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "given"]
        parameters = [p.replace(annotation=hints[p.name]) for p in own]
        for name, each in options.items():
            parameters.append(_parameter(name, _option(each, verb)))
        if others := ", ".join(name for name in known if name not in options):
            pairs = typer.Option(
                "--set", metavar="KEY=VALUE", help=f"Any of these settings: {others}.", rich_help_panel=OTHER
            )
            parameters.append(_parameter("pairs", Annotated[list[str] | None, pairs]))

        @functools.wraps(command)
        def flat(**values: Any) -> Any:
            flags = {name: values.pop(name) for name in options}
            given = {name: value for name, value in flags.items() if value not in (None, [])}
            given |= parse_pairs(values.pop("pairs", None) or ())
            return command(**values, given=_read(given, known, verb))

        flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        flat.__annotations__ = {p.name: p.annotation for p in parameters}
        del flat.__wrapped__
        return flat

    return decorate


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` words of `--set` as a table; keys may have dashes."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set {pair!r} should be KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def of_workload(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the workload, and the remaining ones."""
    own = {key: value for key, value in given.items() if is_option(key) or key in settings_of(Workload)}
    return own, {key: value for key, value in given.items() if key not in own}


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _option(each: Setting, verb: str) -> Any:
    """Values are parsed by the schema, not by typer, so that errors are worded the same everywhere."""
    usual = "|".join(each.choices) if len(each.choices) == 2 else METAVARS.get(each.kinds[0], "TEXT")
    metavar = each.metavar or usual
    words = [each.help.rstrip(".")]
    if len(each.choices) > 2 and not any(choice in each.help for choice in each.choices):
        words = [f"{words[0]}: {', '.join(each.choices)}"]
    if verb in each.several:
        metavar, words = f"{metavar}[,{metavar}...]", [*words, "several numbers give one result each, e.g. 4,8,12"]
    if each.default not in (None, "", False) and each.name not in settings_of(Workload):
        words.append(f"default {each.default}")
    kind: Any = bool if each.kinds == (bool,) else list[str] if each.kinds == (list[str],) else str
    complete = (lambda incomplete: [c for c in each.choices if c.startswith(incomplete)]) if each.choices else None
    option = typer.Option(
        each.option, metavar=None if kind is bool else escape(metavar), help=escape("; ".join(words) + "."),
        rich_help_panel=each.group, autocompletion=complete,
    )  # fmt: skip
    return Annotated[kind | None, option]


def _read(given: dict[str, Any], known: dict[str, Setting], verb: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for written, value in given.items():
        key = written if is_option(written) else written.replace("-", "_")
        if not is_option(key) and key not in known:
            raise InputError(f"no setting {written!r} for {verb}: {nearest(key, known)}")
        if not isinstance(value, str):
            found[key] = value
        elif is_option(key):
            found[key] = read_any(value)
        else:
            found[key] = _several(known[key], value) if verb in known[key].several else known[key].parse(value)
    return found


def _several(each: Setting, text: str) -> Any:
    try:
        values = [each.parse(word.strip()) for word in text.split(",")]
    except InputError as error:
        raise InputError(f"{error}, or several separated by commas, e.g. 4,8,12") from error
    return values if len(values) > 1 else values[0]
