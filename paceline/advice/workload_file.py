"""A workload as a TOML file that `paceline train` reads: what differs from the network's own settings, and notes."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from typing import Any

from paceline.workload import Workload, resolve

ALWAYS = ("network", "data", "batch", "epochs")
COLUMNS = 100


def workload_text(workload: Workload, notes: Sequence[str] = ()) -> str:
    """Resolving the file gives the same workload."""
    usual = resolve(workload.network)
    given = {
        field.name: getattr(workload, field.name)
        for field in dataclasses.fields(workload)
        if field.name in ALWAYS or getattr(workload, field.name) != getattr(usual, field.name)
    }
    comments = [
        line for note in notes
        for line in textwrap.wrap(note, COLUMNS, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)
    ]  # fmt: skip
    options = given.pop("options", {})
    lines = [f"{key} = {_value(value)}" for key, value in given.items() if value is not None]
    lines += ["", "[options]", *(f"{key} = {_value(value)}" for key, value in options.items())] if options else []
    return "\n".join([*comments, *lines]) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
