"""`paceline.replay`: a distributed run made again on one CPU, event by event, to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paceline.api.settings import as_optional_path, as_path

if TYPE_CHECKING:
    from torch import Tensor


def replay(directory: str | Path, *, data_dir: str | Path | None = None) -> Tensor:
    """Replay a run that was made with `record_events=True`, and return its final parameters as one vector.

    >>> settings = {"data": "digits", "epochs": 1, "threads": 1, "record_events": True}
    >>> run = paceline.train("mlp", "downpour", driver="virtual", out="runs/recorded", **settings)
    >>> len(paceline.replay("runs/recorded")) == run.parameters
    True
    """
    from paceline.simulation.replay import replay_run

    return replay_run(as_path(directory, "directory"), cache=as_optional_path(data_dir, "data_dir"))
