"""The examples run as they are, from any directory, and as `module:function` from their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def outcome_of(arguments: list[str | Path], where: Path) -> str:
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=where, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_tried_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {script for script, _ in SCRIPTS}


def test_examples_are_short():
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 60 for path in EXAMPLES.glob("*.py"))


SCRIPTS = [
    ("own_model.py", "epoch 5: loss"),
    ("own_data.py", "test accuracy"),
    ("own_phases.py", "step: flat"),
    ("load_checkpoint.py", "the record says: finished"),
    ("delayed_gradients.py", "delay compensation"),
]


@pytest.mark.parametrize(("script", "says"), SCRIPTS)
def test_an_example_runs_as_a_script(script, says, tmp_path):
    assert says in outcome_of([EXAMPLES / script], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["own_model:build", "--data", "digits"],
        ["mlp", "--data", "own_data:rings", "--set", "options.hidden=32"],
        ["own_phases:Machine", "--data", "digits", "--set", "phases=own_phases:phases"],
    ],
)
def test_an_example_is_found_as_module_and_function(arguments, tmp_path):
    for path in EXAMPLES.glob("*.py"):
        shutil.copy(path, tmp_path)
    said = outcome_of(["-m", "paceline", "train", *arguments, "--epochs", "1", "--out", "run"], tmp_path)
    assert "epoch 1/1" in said
    assert (tmp_path / "run" / "summary.html").exists()


def test_both_accuracies_of_the_loaded_checkpoint_agree(tmp_path):
    said = outcome_of([EXAMPLES / "load_checkpoint.py"], tmp_path)
    line = next(line for line in said.splitlines() if "in PyTorch" in line)
    in_pytorch, in_record = (part.split("%")[0].split()[-1] for part in line.split(","))
    assert in_pytorch == in_record
