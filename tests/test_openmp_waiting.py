"""Threads of an operation wait briefly for each other, in our processes and unless the user has set otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.child_environment import child_environment
from paceline.openmp_waiting import SPIN_COUNT, wait_briefly

COMMAND = """
import os, sys
from paceline.cli import main
imported = "torch" in sys.modules
main(["catalogue", "links"])
print(imported, os.environ["GOMP_SPINCOUNT"])
"""


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("given", [{"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_what_the_user_has_set_stays(given):
    environment = dict(given)
    wait_briefly(environment)
    assert environment == given


def test_processes_that_are_started():
    assert child_environment()["GOMP_SPINCOUNT"] == str(SPIN_COUNT)


def test_a_command_sets_it_before_pytorch_is_imported():
    ran = subprocess.run([sys.executable, "-c", COMMAND], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == f"False {SPIN_COUNT}"
