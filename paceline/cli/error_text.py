"""Translates Python arguments in error messages, which stand in backquotes, into command-line options."""

from __future__ import annotations

import ast
import re
import shlex
from typing import Any

from paceline.training.settings import SCHEMA

_CODE = re.compile(r"`([^`]+)`")
_COMMANDS = {"resume": "train --resume"}  # functions that are an option of another verb


def as_command_line(message: str, options: dict[str, str]) -> str:
    """`out='runs/x'` becomes --out runs/x, and `paceline.compare(resume='x')` paceline compare --resume x.

    `options` are the verb's options by argument name; a setting without one is written with --set.
    """
    return _CODE.sub(lambda found: _translated(found[1], options), message)


def _translated(code: str, options: dict[str, str]) -> str:
    try:
        parsed = ast.parse(code if code.startswith("paceline.") else f"given({code})", mode="eval").body
        assert isinstance(parsed, ast.Call)
        values = [ast.literal_eval(each) for each in parsed.args if not isinstance(each, ast.Name)]
        given = {str(each.arg): ast.literal_eval(each.value) for each in parsed.keywords}
    except (SyntaxError, ValueError, AssertionError):
        return code
    if isinstance(parsed.func, ast.Attribute):
        verb = _COMMANDS.get(parsed.func.attr, parsed.func.attr)
        written = [_written(name, value, f"--{name.replace('_', '-')}") for name, value in given.items()]
        return " ".join(["paceline", verb, *map(_word, values), *written])
    if not given:
        return options.get(code, code)
    return " ".join(_written(name, value, options.get(name)) for name, value in given.items())


def _written(name: str, value: Any, option: str | None) -> str:
    if option is None:
        return f"--set {name}={_word(value)}" if name in SCHEMA else f"{name} {_word(value)}"
    return option if value is True else f"{option} {_word(value)}"


def _word(value: Any) -> str:
    return shlex.quote(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
