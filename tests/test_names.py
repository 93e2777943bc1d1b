"""A class or public function name stands for one concept: no two rooms define the same name for different things."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import paceline

ROOT = Path(paceline.__file__).parent

# One concept in several rooms, with the reason.
SAME_CONCEPT = {
    **dict.fromkeys(
        (
            *("calibrate", "evaluate", "measure", "measure_links", "predict", "replay", "report"),
            *("resume", "verify"),
        ),
        "the public function checks its arguments and calls the one that does the work",
    ),
    **dict.fromkeys(("fetch", "path"), "the verbs of `paceline data` and the functions they call"),
    "load": "reads what is saved: a record, the records of a folder, or a data set",
    "main": "the entry point of a process",
}


def room_of(path: Path) -> str:
    """The command line is the same concept as the API it calls."""
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "api" if room == "cli" else room


def public_names(source: str) -> set[str]:
    """Classes and functions of a module, without private ones."""
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(source).body if isinstance(node, defined) and node.name[0] != "_"}


def shared_names(rooms: dict[str, set[str]]) -> dict[str, list[str]]:
    """Names that several rooms define, with the rooms."""
    where: defaultdict[str, list[str]] = defaultdict(list)
    for room, names in sorted(rooms.items()):
        for name in names:
            where[name].append(room)
    return {name: found for name, found in sorted(where.items()) if len(found) > 1}


@pytest.fixture(scope="module")
def shared() -> dict[str, list[str]]:
    rooms: defaultdict[str, set[str]] = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        rooms[room_of(path)] |= public_names(path.read_text(encoding="utf-8"))
    return shared_names(rooms)


def test_no_name_stands_for_two_concepts(shared):
    unexplained = {name: rooms for name, rooms in shared.items() if name not in SAME_CONCEPT}
    assert not unexplained, "rename all but one of each"


def test_every_exception_is_needed(shared):
    assert set(SAME_CONCEPT) <= set(shared)


def test_a_name_in_two_rooms_is_found():
    rooms = {"step": public_names("class Batch: ...\ndef _private(): ..."), "data": public_names("def Batch(): ...")}
    assert shared_names(rooms) == {"Batch": ["data", "step"]}
