"""What a training command would do: it is parsed and checked as any other, and stopped where training would begin."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import pytest

from paceline.cli import main
from paceline.training.starting import Setup
from paceline.workload import Workload


@dataclass
class Captured(Exception):
    setup: Setup
    workload: Workload


def captured(command: str, monkeypatch: pytest.MonkeyPatch) -> Captured:
    """The training that a command line describes."""

    def stop(self: Setup, workload: Workload, **options: object) -> None:
        raise Captured(self, workload)

    monkeypatch.setattr(Setup, "train", stop)
    program, *words = shlex.split(command)
    assert program == "paceline"
    with pytest.raises(Captured) as found:
        main(words)
    return found.value
