"""Why something failed, in one line: what a message about a failure ends with."""

from __future__ import annotations


def reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
