"""`paceline.evaluate`: test accuracy and loss of a run's saved parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.settings import as_optional_path, as_path
from paceline.errors import InputError
from paceline.given_workload import texts_of
from paceline.held_objects import holding, same
from paceline.trust import trusting

if TYPE_CHECKING:
    from torch import nn

    from paceline.training.evaluate import Evaluation
    from paceline.training.run import Run


def evaluate(
    run: str | Path | Run,
    data: Any = None,
    device: str | None = None,
    *,
    model: nn.Module | None = None,
    data_dir: str | Path | None = None,
    trust: bool = False,
) -> Evaluation:
    """Evaluate the saved parameters of a run on its own test data, or on other `data`.

    `run` is the record that `paceline.train` returned, the directory of a run, or its checkpoint. A run that was given
    an `nn.Module` needs it again as `model`; it is left with the run's parameters. `trust=True` runs code that the run
    names, wherever it lies.

    >>> run = paceline.train("mlp", data="digits", epochs=2, out="runs/evaluated")
    >>> paceline.evaluate(run).accuracy == run.test_accuracy
    True
    """
    from paceline.training.evaluate import evaluate as score
    from paceline.training.run import Run

    if isinstance(run, Run):
        if not run.directory:
            raise InputError("the run was not saved: train it with `out`")
        run = run.directory
    with holding() as hold, trusting(trust):
        changes = texts_of({"data": data} if data is not None else {}, hold)
        if model is not None:
            changes["network"] = hold(same(model), type(model).__name__)
        return score(as_path(run, "run"), {**changes, "device": device}, as_optional_path(data_dir, "data_dir"))
