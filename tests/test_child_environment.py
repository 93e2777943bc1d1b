"""A process that we start imports this package and asks for huge pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import paceline
from paceline.child_environment import child_environment


def test_it_imports_the_same_package_from_anywhere(tmp_path):
    code = "import paceline; print(paceline.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(ran.stdout.strip()) == Path(paceline.__file__)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (None, "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.check=1", "glibc.malloc.check=1:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_what_the_user_has_set_stays(ours, theirs, monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if ours is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", ours)
    assert child_environment(A="b")["GLIBC_TUNABLES"] == theirs
    assert child_environment(A="b")["A"] == "b"
