"""The Dockerfile passes a linter, copies what the package needs, and names no registry and no version of PyTorch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_linter_has_nothing_to_say():
    hadolint = Path(sys.executable).parent / "hadolint"
    found = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_what_is_copied_is_there_and_not_ignored():
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", TEXT, re.MULTILINE) for word in line.split()]
    kept = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(copied) == sorted(kept) and all((ROOT / name).exists() for name in copied)


def test_it_runs_as_a_user_and_leaves_versions_to_the_package():
    assert re.findall(r"^USER (.*)$", TEXT, re.MULTILINE) == ["1000"]
    assert re.findall(r"^FROM (\S+)$", TEXT, re.MULTILINE) == ["python:${PYTHON}-slim"]
    assert "torch" not in TEXT and "'.[ray]'" in TEXT
