"""Errors of the library name arguments as Python has them; the command line says the same with its options."""

import ast
import re
from pathlib import Path

import pytest

import paceline
from paceline.cli import _options_of
from paceline.cli.error_text import as_command_line
from paceline.errors import PacelineError

TRAIN = ["train", "mlp"]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("`out='runs/x'` is a file", "--out runs/x is a file"),
        ("`out='my runs'` is a file", "--out 'my runs' is a file"),
        ("`measure=True` needs `driver='local'`", "--measure needs --driver local"),
        ("use a smaller `batch`", "use a smaller --batch"),
        ("use `loss='squared'`", "use --set loss=squared"),
        ("`workers=[2, 4]`: several", "--workers 2,4: several"),
        ("run `paceline.calibrate(local_workers=True)` first", "run paceline calibrate --local-workers first"),
        ("continue with: `paceline.resume('runs/x')`", "continue with: paceline train --resume runs/x"),
        ("continue with: `paceline.compare(resume='x')`", "continue with: paceline compare --resume x"),
        ("outside the clock's `with` block", "outside the clock's with block"),
        ("no `target_accuracy` here", "no target_accuracy here"),
    ],
)
def test_python_arguments_become_options(message, said):
    assert as_command_line(message, _options_of(TRAIN)) == said


def test_an_error_names_the_argument_in_python_and_the_option_on_the_command_line(tmp_path, monkeypatch, capsys):
    from paceline.cli import main

    monkeypatch.chdir(tmp_path)
    Path("taken").touch()
    with pytest.raises(PacelineError, match=re.escape("`out='taken'` is a file: choose a directory")):
        paceline.train("mlp", data="digits", out="taken")
    assert main(["train", "mlp", "--data", "digits", "--out", "taken"]) == 2
    assert capsys.readouterr().err == "paceline: --out taken is a file: choose a directory\n"


def test_no_text_of_the_library_names_an_option():
    """Only the command line does; docstrings are not looked at, nor the options of other programs."""
    found = []
    for path in sorted(Path(paceline.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.parent.name != "cli" else ast.Module([], [])
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found += (
                    [f"{path}:{node.lineno}: {node.value}"] if re.search(r"[ (]--[a-z]|^--[a-z]+ ", node.value) else []
                )
    assert found == []
