"""Saves and loads any record: one JSON file that names its kind and the version of its schema.

Records are frozen dataclasses, see `record_fields`: a loaded record equals the saved one, and a file that lacks a
field, holds another type, or a time or size that cannot be one, is refused by name.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from paceline.errors import PacelineError, RecordError, a_type
from paceline.output_file import write_atomically
from paceline.record_fields import from_json, to_json

__all__ = ["KINDS", "OLDEST", "SCHEMA", "dump", "from_json", "load", "load_as", "save", "to_json", "write_atomically"]

Kind = TypeVar("Kind")
SCHEMA = 6
OLDEST = {
    "run": 4,
    "events": 2,
    "simulation": 4,
    "scaling": 4,
    "plan": 3,
    "outcome": 4,
    "measurement": 4,
    "feeding": 4,
    "calibration": 6,
}
"""The oldest schema that is still read, for kinds that have changed."""

# Kinds are named, not imported: the classes live in rooms above this file.
KINDS = {
    "run": "paceline.training.run:Run",
    "evaluation": "paceline.training.evaluate:Evaluation",
    "measurement": "paceline.measurement.measurement:Measurement",
    "links": "paceline.measurement.links:LinkMeasurement",
    "feeding": "paceline.measurement.feeding:Feeding",
    "events": "paceline.strategy.event_record:EventRecord",
    "simulation": "paceline.simulation.timing:TimeRecord",
    "scaling": "paceline.simulation.scaling:Scaling",
    "prediction": "paceline.cost.prediction:Prediction",
    "pipeline prediction": "paceline.simulation.pipeline_prediction:PipelinePrediction",
    "divided prediction": "paceline.simulation.divided_prediction:DividedPrediction",
    "plan": "paceline.planning.plan:Plan",
    "advice": "paceline.advice.advice:Advice",
    "verification": "paceline.cost.verification:Verification",
    "calibration": "paceline.cost.calibration:Calibration",
    "experiment": "paceline.experiment.experiment:Experiment",
    "outcome": "paceline.results.outcome:RunOutcome",
    "step trial": "paceline.training.step_tuning:StepTrial",
}


def dump(record: Any) -> dict[str, Any]:
    """A record as a JSON object, its schema and kind first."""
    kind = next(k for k, place in KINDS.items() if place == f"{type(record).__module__}:{type(record).__qualname__}")
    return {"schema": SCHEMA, "kind": kind, **to_json(record)}


def save(record: Any, path: Path) -> None:
    write_atomically(path, json.dumps(dump(record), indent=1, allow_nan=False) + "\n")


def load(path: str | Path) -> Any:
    """The record in `path`: a file, or a directory with a `record.json`."""
    path = Path(path)
    if path.is_dir():
        path = path / "record.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except FileNotFoundError:
        raise RecordError(f"no record at {path}") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not JSON, not text, or numbers and depths that nobody writes
        raise RecordError(f"{path} is not a Paceline record, or was cut short ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise RecordError(f"{path} is JSON, but not a record of Paceline: it has no schema number")
    if content["schema"] > SCHEMA:
        raise RecordError(f"{path} has schema {content['schema']}, this version reads up to {SCHEMA}: update Paceline")
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise RecordError(f"{path} holds a {kind!r:.60}; known kinds: {', '.join(KINDS)}")
    if content["schema"] < OLDEST.get(kind, 0):
        raise RecordError(
            f"{path} has schema {content['schema']}, which is too old: this version reads a {kind} from schema "
            f"{OLDEST[kind]} on; make it again"
        )
    module, name = KINDS[kind].split(":")
    return from_json(getattr(importlib.import_module(module), name), content, path.name)


def load_as(path: Path, kind: type[Kind], error: type[PacelineError] = RecordError) -> Kind:
    """The record in `path`, which should be of this kind."""
    found = load(path)
    if not isinstance(found, kind):
        raise error(f"{path} holds {a_type(found).lower()}, not a {kind.__name__.lower()}")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")
