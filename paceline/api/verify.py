"""`paceline.verify`: was the prediction right? What was predicted beside what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paceline.api.settings import as_path
from paceline.errors import InputError
from paceline.trust import trusting

if TYPE_CHECKING:
    from paceline.cost.prediction import Prediction
    from paceline.cost.verification import Verification
    from paceline.measurement.measurement import Measurement
    from paceline.planning.plan import Plan
    from paceline.training.run import Run


def verify(
    prediction: Prediction | Plan | str | Path,
    measured: Run | Measurement | str | Path | None = None,
    *,
    device: str | None = None,
    trust: bool = False,
) -> Verification:
    """Compare a prediction, or the one a plan was made from, with what was measured, part by part.

    Both can be given as records or as their files or directories. `measured` is a run or a measurement. With one
    argument, it is the directory of what was measured: the prediction saved there is verified, or one is made now,
    for the `device` of the calibration file or catalogue name that is given. `trust=True` runs code that a run names,
    wherever it lies.

    >>> predicted = paceline.predict("mlp", "Xeon Platinum 8480+", data="digits", threads=1)
    >>> found = paceline.measure("mlp", data="digits", threads=1, iterations=40)
    >>> [row.name for row in paceline.verify(predicted, found).rows][:3]
    ['iteration', 'load', 'forward']
    """
    from paceline.reporting.verification import verify as compare
    from paceline.training.run import Run

    if measured is None:
        if isinstance(prediction, str | Path):
            with trusting(trust):
                return compare(Path(prediction), device=device)
        raise InputError(
            "a prediction is verified against a run or a measurement: give measured=, the record or its directory"
        )
    if device is not None:
        raise InputError(f"device={device!r} has no effect, because a prediction was given")
    found = _prediction(prediction)
    from paceline.measurement.measurement import Measurement

    if isinstance(measured, Run | Measurement):
        return compare(measured, prediction=found)
    return compare(as_path(measured, "measured"), prediction=found)


def _prediction(given: Prediction | Plan | str | Path) -> Prediction:
    from paceline.cost.prediction import Prediction
    from paceline.planning.plan import Plan
    from paceline.record import load

    if isinstance(given, str | Path):
        path = Path(given)
        files = [path / name for name in ("prediction.json", "plan.json") if (path / name).is_file()]
        given = load(files[0] if files else path)
    if isinstance(given, Plan):
        return given.prediction
    if isinstance(given, Prediction):
        return given
    raise InputError(f"prediction={given!r:.60} should be a prediction or a plan, or the file or directory of one")
