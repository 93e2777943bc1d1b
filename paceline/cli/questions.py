"""Asks for the description of a task on a terminal, one setting at a time; a wrong answer is asked for again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console

from paceline.advice.task import EXAMPLE_SHAPES, KINDS, TASKS, TEXT, TREES, TaskDescription, describe_task
from paceline.errors import InputError, nearest
from paceline.settings import settings_of


def ask_task(console: Console) -> tuple[str, dict[str, Any]]:
    """The task and its settings, as options would give them."""
    task = _ask(console, f"What should the network do? ({', '.join(TASKS)})", _task)
    given: dict[str, Any] = {}
    for name, question in _questions(task, given):
        answer = _ask(console, question, settings_of(TaskDescription)[name].parse, may_be_empty=True)
        if answer is not None:
            given[name] = answer
    describe_task(task, given)
    return task, given


def _questions(task: str, given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Later questions depend on earlier answers."""
    yield "data", "Your data, as in paceline data list (empty: describe them)"
    if "data" not in given:
        yield "kind", f"Kind of data ({', '.join(KINDS)})"
        kind = given.get("kind")
        if kind not in (TEXT, TREES, None):
            yield "shape", f"Shape of a sample, e.g. {EXAMPLE_SHAPES[kind]}"
            yield "samples", "Training samples"
            yield "classes", "Classes (empty: none)"
    if task == "classify":
        yield "labels", "Samples with a label (empty: all)"
    yield "error", "Acceptable error, e.g. 5% (empty: any)"
    yield "time", "Time available for training, e.g. 10min or 24h (empty: any)"
    yield "device", "Device or machine of the catalogue (empty: this machine)"
    if "device" in given:
        yield "devices", "Number of these devices (empty: 1)"


def _task(text: str) -> str:
    if text not in TASKS:
        raise InputError(f"no task {text!r:.60}: {nearest(text, TASKS)}")
    return text


def _ask(console: Console, question: str, read: Callable[[str], Any], *, may_be_empty: bool = False) -> Any:
    while True:
        text = console.input(f"{question}: ").strip()
        if not text and may_be_empty:
            return None
        try:
            return read(text)
        except InputError as error:
            console.print(str(error))
