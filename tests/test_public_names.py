"""What `import paceline` offers is listed here too, so that it changes only on purpose."""

from __future__ import annotations

import subprocess
import sys

import pytest

import paceline

PUBLIC = [
    "Advice",
    "Arrays",
    "Calibration",
    "Cluster",
    "Dataset",
    "Device",
    "Evaluation",
    "Exchange",
    "Experiment",
    "InputError",
    "Late",
    "LayerClock",
    "Link",
    "LossPhase",
    "Machine",
    "Measurement",
    "Outcome",
    "PacelineError",
    "Phase",
    "Plan",
    "Prediction",
    "Replica",
    "ResultsTable",
    "Rule",
    "Run",
    "Scaling",
    "Span",
    "Strategy",
    "TaskDescription",
    "Trace",
    "TrainingClock",
    "Verification",
    "Workload",
    "advise",
    "calibrate",
    "collect",
    "compare",
    "datasets",
    "deploy",
    "devices",
    "draw",
    "evaluate",
    "find_strategy",
    "links",
    "load",
    "load_dataset",
    "machines",
    "measure",
    "measure_links",
    "models",
    "plan",
    "predict",
    "predict_divided",
    "predict_pipeline",
    "replay",
    "report",
    "reproduce",
    "resolve",
    "resume",
    "simulate",
    "strategies",
    "studies",
    "train",
    "verify",
]


def test_the_public_names_are_these():
    assert sorted(paceline.__all__) == PUBLIC
    assert dir(paceline) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_what_it_is_called(name):
    assert getattr(paceline, name).__name__ == name


def test_each_public_class_says_what_it_is():
    classes = {name: found for name in paceline.__all__ if isinstance(found := getattr(paceline, name), type)}
    generated = {name for name, found in classes.items() if (found.__doc__ or "").startswith(f"{name}(")}
    missing = {name for name, found in classes.items() if not found.__doc__}
    assert generated | missing == set(), "a dataclass without a docstring has its signature as one"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'paceline' has no attribute 'trian'"):
        paceline.trian  # noqa: B018


@pytest.mark.parametrize("statement", ["import paceline", "import paceline.data", "import paceline.cli"])
def test_importing_does_not_import_torch(statement):
    heavy = ("torch", "sklearn", "matplotlib", "PIL")
    program = f"{statement}\nimport sys\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
