"""`paceline.draw`: a figure of what the network of a run has learned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paceline.api.settings import as_optional_path, as_path
from paceline.errors import InputError
from paceline.held_objects import holding, same
from paceline.trust import trusting

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from paceline.training.run import Run


def draw(
    run: str | Path | Run, *, model: nn.Module | None = None, data_dir: str | Path | None = None, trust: bool = False
) -> Figure:
    """Draw what the network of a run has learned, from its saved parameters and test data, as a Matplotlib figure.

    Auto-encoders show reconstructions, generative networks samples, and networks that only classify which classes they
    confuse. `run` is the record that `paceline.train` returned, the directory of a run, or its checkpoint. A run of an
    `nn.Module` needs it again as `model`. `trust=True` runs code that the run names, wherever it lies.

    >>> run = paceline.train("mlp", data="digits", epochs=2, out="runs/drawn")
    >>> paceline.draw(run).axes[0].get_title()
    'Test samples of each class, %'
    """
    from paceline.reporting.learned import draw_panels
    from paceline.training.learned import learned_by
    from paceline.training.run import Run

    if isinstance(run, Run):
        if not run.directory:
            raise InputError("the run was not saved: train it with `out`")
        run = run.directory
    with holding() as hold, trusting(trust):
        changes = {"network": hold(same(model), type(model).__name__)} if model is not None else {}
        return draw_panels(learned_by(as_path(run, "run"), changes, as_optional_path(data_dir, "data_dir")))
