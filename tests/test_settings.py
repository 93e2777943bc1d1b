"""A setting is declared in one line, and is there in Python, TOML, help, grid and results."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import paceline
from paceline.errors import InputError
from paceline.settings import check, pick, read, setting, settings_of
from paceline.training.settings import RUNS, SCHEMA

LINE = (
    '    label_noise: float = setting(0.25, "Share of wrong labels.", group=DATA, least=0, below=1, verbs=("train",))\n'
)
USES = """
import sys
from paceline.cli import main
from paceline.experiment.experiment import Experiment
from paceline.record import from_json, to_json
from paceline.results.run_row import WORKLOAD
from paceline.workload import Workload, resolve

assert Workload().label_noise == 0.25 and Workload(label_noise=0.5).label_noise == 0.5
open("one.toml", "w").write('network = "mlp"\\nlabel_noise = 0.125\\n')
assert resolve("one.toml").label_noise == 0.125
runs = Experiment("noise", grid=({"label-noise": [0.0, 0.5]},)).runs()
assert [run.workload.label_noise for run in runs] == [0.0, 0.5]
assert "label_noise" in WORKLOAD
assert from_json(Workload, to_json(Workload(label_noise=0.75)), "workload").label_noise == 0.75
assert main(["train", "mlp", "--label-noise", "1"]) == 2
sys.exit(main(["train", "--help"]))
"""


def test_a_setting_added_in_one_line_is_everywhere(tmp_path):
    """In a copy of the package, one line is added to the record of a workload."""
    home = Path(paceline.__file__).parent
    package = tmp_path / "paceline"
    package.mkdir()
    for part in home.iterdir():
        if part.name not in ("workload.py", "__pycache__"):
            (package / part.name).symlink_to(part)
    source = (home / "workload.py").read_text(encoding="utf-8")
    first = "    data: str = setting("
    assert source.count(first) == 1
    (package / "workload.py").write_text(source.replace(first, LINE + first), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", USES], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "COLUMNS": "120", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "label_noise=1 should be a number of at least 0 and below 1" in done.stderr
    assert "--label-noise" in done.stdout and "Share of wrong labels." in done.stdout


@dataclass(frozen=True)
class Record:
    size: int = setting(3, "Size.", least=1, most=9)
    share: float | None = setting(None, "Share.", above=0, below=1)
    parts: list[float] | None = setting(None, "Parts.", above=0)
    name: str = setting("a", "Name.", choices=("alpha", "beta", "a"))
    fast: bool = setting(False, "Fast.")

    def __post_init__(self) -> None:
        check(self, InputError)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": 0}, "size=0 should be a whole number from 1 to 9"),
        ({"size": True}, "size=True should be a whole number from 1 to 9"),
        ({"size": "many"}, "size='many' should be a whole number from 1 to 9"),
        ({"size": 10**5000}, "should be a whole number from 1 to 9"),
        ({"share": 1}, "share=1 should be a number above 0 and below 1"),
        ({"share": float("nan")}, "share=nan is not a finite number"),
        ({"share": "inf"}, "share=inf is not a finite number"),
        ({"parts": "1,x"}, "parts='1,x' should be a list of numbers above 0"),
        ({"parts": [1, -1]}, "parts=[1, -1] should be a list of numbers above 0"),
        ({"name": "alfa"}, "name 'alfa' is unknown: did you mean alpha?"),
        ({"fast": "maybe"}, "fast='maybe' should be true or false"),
        ({"siez": 3}, "no key 'siez' in a record: did you mean size?"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(given, words):
    with pytest.raises(InputError) as raised:
        Record(**read(Record, given, InputError, "a record"))
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_text_is_read_as_the_type_of_its_setting():
    found = Record(**read(Record, {"size": "5", "share": "none", "parts": "1, 2.5", "fast": "true"}, InputError, "x"))
    assert found == Record(5, None, [1.0, 2.5], fast=True)
    assert Record(share=0.5, parts=[1]).parts == [1.0]


def test_pick_leaves_what_belongs_elsewhere():
    assert pick(Record, {"size": "4", "colour": "red"}) == {"size": 4}


def test_every_setting_is_explained():
    for name, each in SCHEMA.items():
        assert each.help.endswith(".") and each.group, name
        assert {*each.runs} <= {*RUNS}, name
        if each.default is not None:
            each.read(each.default)


def test_the_schema_follows_from_the_records():
    assert settings_of(Record)["size"].option == "--size"
    assert SCHEMA["push_every"].option == "--push-every"
