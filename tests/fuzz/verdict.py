"""What is wrong with how a command ended: a traceback, a hang, a silent success, something left behind."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.case import Case
from tests.fuzz.child import HUNG, Ending

LEFT = (".tmp", ".lock")


def faults(case: Case, ending: Ending, before: set[str], directory: Path) -> list[str]:
    found = []
    after = contents(directory)
    lines = ending.err.splitlines()
    if ending.code == HUNG:
        found.append("it hung")
    elif "Traceback" in ending.err or ending.code not in (0, 1, 2):
        found.append(f"it crashed with {ending.code}")
    elif ending.code and (sum(line.startswith("paceline: ") for line in lines) != 1 or "paceline: " not in lines[-1]):
        found.append("its error is not one line that begins with paceline:")
    elif ending.code == 2 and len(lines) != 1:
        found.append("a usage error is not just one line")
    elif not ending.code and case.must_fail:
        found.append("it succeeded with malformed input")
    if any(name.endswith(LEFT) for name in after - before):
        found.append(f"temporary files are left: {sorted(after - before)}")
    elif ending.code == 2 and after != before:
        found.append(f"files are left after a usage error: {sorted(after ^ before)}")
    if ending.processes:
        found.append(f"processes are left: {ending.processes}")
    return found


def contents(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}
