"""Runs that a benchmark keeps: trained once, resumed if interrupted, read back afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import paceline


def kept_run(place: Path, network: str, *strategy: str, **settings: Any) -> paceline.Run:
    """The finished run in `place`; what is there must have been trained with the same settings."""
    if not (place / "checkpoint.pt").exists():
        shutil.rmtree(place, ignore_errors=True)  # interrupted before the first checkpoint
        return paceline.train(network, *strategy, out=place, **settings)
    run = paceline.load(place)
    assert isinstance(run, paceline.Run)
    return run if run.status == "finished" else paceline.resume(place)
