"""Checks shell scripts, and runs them with stand-ins for the programs of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STAND_IN = """#!/bin/bash
# One write for a whole line: programs in the background write to the same file.
echo "{name}$(printf ' <%s>' "$@") [$RAY_ADDRESS]" >> "$LOG"
{body}
"""
PROGRAMS = {
    "scontrol": 'printf "%s\\n" node1 node2 node3',
    "hostname": 'echo "10.0.0.5 fe80::1"',
    "srun": "", "ray": "", "python": "", "paceline": "", "pip": "",
}  # fmt: skip


def check(script: str) -> None:
    """Whether bash can parse it, and shellcheck finds nothing to say."""
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    shellcheck = Path(sys.executable).parent / "shellcheck"
    found = subprocess.run([shellcheck, "--shell=bash", "-"], input=script, text=True, capture_output=True)
    assert found.returncode == 0, found.stdout


def run(script: str, folder: Path, environment: dict[str, str], **programs: str) -> tuple[int, list[str]]:
    """The exit code, and the calls in order, each with the RAY_ADDRESS it had."""
    log = folder / "log"
    for name, body in (PROGRAMS | programs).items():
        (folder / name).write_text(STAND_IN.format(name=name, body=body))
        (folder / name).chmod(0o755)
    variables = {"PATH": f"{folder}:{os.environ['PATH']}", "LOG": str(log), **environment}
    done = subprocess.run(["bash", "-c", script], env=variables, timeout=30, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.returncode, log.read_text().splitlines()
