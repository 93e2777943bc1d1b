"""The examples run as they are, from any directory, and as `module:function` from their own."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_every_example_is_tried_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {script for script, _ in SCRIPTS}


def test_examples_are_short():
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 80 for path in EXAMPLES.glob("*.py"))


def test_examples_need_nothing_but_the_public_names():
    for path in EXAMPLES.glob("*.py"):
        imported = [
            line
            for line in path.read_text(encoding="utf-8").splitlines()
            if re.match(r"\s*(from|import) paceline", line)
        ]
        assert set(imported) == {"import paceline"}, path.name


VIRTUAL = ("--strategy", "downpour", "--driver", "virtual")
SCRIPTS = [
    ("own_model.py", "epoch 5: loss"),
    ("own_data.py", "test accuracy"),
    ("own_phases.py", "step: flat"),
    ("load_checkpoint.py", "the record says: finished"),
    ("delayed_gradients.py", "delay compensation"),
    ("own_exchange.py", "replayed local: the same bits: True"),
]


@pytest.mark.parametrize(("script", "says"), SCRIPTS)
def test_an_example_says_what_it_found_and_leaves_nothing_behind(script, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])  # as for a script
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / script)])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    said = capsys.readouterr().out
    assert says in said
    assert list(tmp_path.iterdir()) == []
    if script == "load_checkpoint.py":
        assert_both_accuracies_agree(said)


def test_an_example_runs_as_a_script_in_a_process_of_its_own(tmp_path):
    script, says = SCRIPTS[0]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and says in done.stdout, done.stdout + done.stderr


def assert_both_accuracies_agree(said: str) -> None:
    """Of the loaded checkpoint: in plain PyTorch, and in the record."""
    line = next(line for line in said.splitlines() if "in PyTorch" in line)
    in_pytorch, in_record = (part.split("%")[0].split()[-1] for part in line.split(","))
    assert float(in_pytorch) == float(in_record) > 50


@pytest.mark.parametrize(
    "arguments",
    [
        ["own_model:build", "--data", "digits"],
        ["mlp", "--data", "own_data:rings", "--set", "options.hidden=32"],
        ["dnn", "--data", "digits", *VIRTUAL, "--exchange", "own_exchange:Largest:0.1"],
        ["dnn", "--data", "digits", *VIRTUAL, "--correction", "delayed_gradients:damped"],
        ["own_phases:Machine", "--data", "digits", "--set", "phases=own_phases:phases"],
    ],
)
def test_an_example_is_found_as_module_and_function(arguments, paceline, tmp_path, monkeypatch):
    for path in EXAMPLES.glob("*.py"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = paceline("train", *arguments, "--epochs", "1", "--out", "run")
    assert result.code == 0 and "epoch 1/1" in result.out, result.err
    assert (tmp_path / "run" / "summary.html").exists()
