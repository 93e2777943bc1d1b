"""Command lines with one mistake in them; verbs and options are read from the program itself."""

from __future__ import annotations

from random import Random
from typing import Any

import typer

from paceline.cli import make_app
from tests.fuzz.case import Case

BASES: dict[str, tuple[str, ...]] = {
    "train": ("mlp", "--epochs", "1"),
    "advise": ("classify", "--kind", "table", "--shape", "30", "--samples", "500", "--classes", "2"),
    "plan": ("mlp", "--cluster", "g2-standard-8"),
    "measure": ("mlp", "--iterations", "20"),
    "predict": ("mlp", "--device", "calibration.json"),
    "simulate": ("mlp", "--strategy", "sync", "--workers", "2", "--steps", "3"),
    "verify": ("measured", "--device", "calibration.json"),
    "report": ("run",),
    "evaluate": ("run",),
    "models": (),
    "catalogue": ("machines",),
    "data list": (),
    "data path": ("digits",),
    "data fetch": ("digits",),
}
"""Cheap calls that succeed."""
ONLY_REFUSED = ("calibrate", "compare", "reproduce", "demo", "doctor")
"""Verbs that take long when nothing is wrong with the call."""
COPIES = {"run": "run", "measured": "measured", "calibration.json": "calibration.json"}
NO_NUMBERS = ("", "abc", "1,5", "0x1g", "--", "1e", "9" * 5000, "one\ntwo", "½")
NO_FLOATS = ("nan", "-inf")
ODD_NUMBERS = ("-1", "0", "1000000000000", "99999999999999999999", "1e308", "-0.0", "1e-300")
ODD_WORDS = (
    "", " ", "nothing", "no:thing", "sys:exit", "os:nothing", "json:dumps", ":", "::", "a" * 300, "a/b/c", "ünï",
    "\x1b[31m",
    "folder", "loop", "text.txt", "loop/x", "text.txt/x", "../../..", "-", "=", "x=", "=x", "a=b=c", "options.=1",
    "%s{}", "nan", "1e999", "9" * 5000,
)  # fmt: skip
GRAMMARS = (
    "synthetic:1x8x8/10", "digits:50", "text:text.txt", "images:folder", "arrays:text.txt", "warm-up:1+step:3:0.1",
    "schedule=cosine", "init=small:0.1", "options.hidden=[3,4]", "betas=[0.9,0.99]", "gamma:100:0.01", "uniform:1:2",
    "constant:0.5", "1,2,4", "sync", "downpour", "easgd", "local-sgd", "softsync", "topk:0.1", "int8", "elastic:0.1",
    "delay:constant:0.04", "momentum:0.9", "adam", "2epochs", "10s", "1d12h", "97%", "10 Gb/s Ethernet", "10GB", "5ms",
    "g2-standard-8", "L4", "cuda:0", "cpu", "bfloat16", "virtual", "0:2:1.5", "1=kill@3", "push_every=2", "4x2", "auto",
)  # fmt: skip
"""Words that mean something to some option; each is tried, whole and misspelt, with any."""
PLACES = ("loop", "text.txt/x", "folder", "loop/x", "n" * 300, "/proc/nothing", "/")


def verbs() -> dict[str, list[Any]]:
    """The parameters of every verb."""
    found: dict[str, list[Any]] = {}

    def visit(command: Any, name: str) -> None:
        for word, inner in command.commands.items() if hasattr(command, "commands") else ():
            visit(inner, f"{name} {word}".strip())
        if not hasattr(command, "commands"):
            found[name] = [p for p in command.params if p.opts[0].startswith("--") and p.opts[0] != "--help"]

    visit(typer.main.get_command(make_app()), "")
    return found


def kind_of(parameter: Any) -> str:
    """flag, whole, number or words."""
    if getattr(parameter, "is_flag", False):
        return "flag"
    described = getattr(parameter, "type_descriptor", None)  # a typer with its own copy of click
    kind = described.annotation.__name__ if described is not None else parameter.type.name
    return {"int": "whole", "integer": "whole", "float": "number"}.get(kind.split()[0], "words")


def malformed_call(chance: Random, known: dict[str, list[Any]]) -> Case:
    verb = chance.choice([*sorted(known), *("train", "simulate", "plan", "predict", "measure") * 4])
    base, options = list(BASES.get(verb, ())), known[verb]
    certain = verb in ONLY_REFUSED
    makers = [_unknown_option, _missing_value, _no_number, _unwritable, _extra_words]
    made = None
    while made is None:
        maker = chance.choice(makers if certain else [*makers, *(_odd_value,) * 12, _misspelt_verb])
        made = maker(chance, options, base)
    words, must_fail = made
    arguments = words if maker is _misspelt_verb else [*verb.split(), *words]
    return Case(
        tuple(arguments), must_fail or certain, COPIES, {"text.txt": b"text\n"}, {"loop": "loop"}, ("folder",)
    )  # fmt: skip


Made = tuple[list[str], bool] | None


def _unknown_option(chance: Random, options: list[Any], base: list[str]) -> Made:
    return [*base, chance.choice(["--nothing", "--Json", "-Z", "--=", "--out=", "---"])], True


def _missing_value(chance: Random, options: list[Any], base: list[str]) -> Made:
    return [*base, chance.choice([p for p in options if kind_of(p) != "flag"]).opts[0]], True


def _no_number(chance: Random, options: list[Any], base: list[str]) -> Made:
    numeric = [p for p in options if kind_of(p) in ("whole", "number")]
    if not numeric:
        return None
    option = chance.choice(numeric)
    values = [*NO_NUMBERS, *NO_FLOATS] if kind_of(option) == "number" else [*NO_NUMBERS, *NO_FLOATS, "2.5", "1e3"]
    value = chance.choice([v for v in values if not (kind_of(option) == "number" and v == "9" * 5000)])
    return [*base, f"{option.opts[0]}={value}"], True


def _unwritable(chance: Random, options: list[Any], base: list[str]) -> Made:
    return [*base, "--json", chance.choice(PLACES)], True


def _extra_words(chance: Random, options: list[Any], base: list[str]) -> Made:
    return [*base, *("nothing",) * 3], True


def _odd_value(chance: Random, options: list[Any], base: list[str]) -> Made:
    option = chance.choice(options)
    kind = kind_of(option)
    if kind == "flag":
        return [*base, option.opts[0], *([chance.choice(options).opts[0]] if chance.random() < 0.5 else [])], False
    if kind != "words":
        value = chance.choice(ODD_NUMBERS)
    else:
        value = chance.choice(ODD_WORDS) if chance.random() < 0.4 else _misspelt(chance, chance.choice(GRAMMARS))
    more = _odd_value(chance, options, []) if chance.random() < 0.2 else None
    return [*base, f"{option.opts[0]}={value}", *(more[0] if more else [])], False


def _misspelt(chance: Random, word: str) -> str:
    at, what = chance.randrange(len(word)), chance.randrange(5)
    other = chance.choice(":,x=/.-+0 9e%[]")
    return [
        word,
        word[:at] + word[at + 1 :],
        word[:at] + other + word[at:],
        word[:at] + other + word[at + 1 :],
        word * 2,
    ][what]


def _misspelt_verb(chance: Random, options: list[Any], base: list[str]) -> Made:
    return [chance.choice(["trian", "", "--", "plans", "data lst", "x" * 500, "train.py"]), *base], True
