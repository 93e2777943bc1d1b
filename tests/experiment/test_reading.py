"""An experiment from a TOML file is the one written in Python; a mistake is one line that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import record
from paceline.errors import InputError
from paceline.experiment.experiment import Experiment, changed
from paceline.experiment.random_search import RandomSearch
from paceline.experiment.reading import read_experiment
from paceline.results.comparison_rows import PublishedNumber

WHOLE = """
name = "whole"
title = "Everything there is"
kind = "train"
repetitions = 3
seed = 5
timeout = 60
checkpoints = false

[workload]
network = "dnn"
options.hidden = [8, 8]

[strategy]
driver = "virtual"

[run]
measure = false

[[grid]]
strategy = "downpour"
workers = [1, 2]

[[grid]]
strategy = "none"

[random]
trials = 4
seed = 1
lr = { log-uniform = [0.001, 0.1] }
options.depth = { integer = [1, 3] }

[quick]
epochs = 1
trials = 2

[[published]]
label = "an epoch"
value = 3
unit = "s"
source = "someone"
metric = "epoch_s"
where = { fetch-every = 2 }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path) -> str:
    with pytest.raises(InputError) as raised:
        read_experiment(path)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_every_part_of_a_file_arrives(tmp_path):
    assert read_experiment(written(tmp_path, WHOLE)) == Experiment(
        name="whole",
        title="Everything there is",
        repetitions=3,
        seed=5,
        timeout_s=60,
        checkpoints=False,
        workload={"network": "dnn", "options.hidden": [8, 8]},
        strategy={"driver": "virtual"},
        run={"kind": "train", "measure": False},
        grid=({"strategy": ["downpour"], "workers": [1, 2]}, {"strategy": ["none"]}),
        random=RandomSearch(4, 1, {"lr": {"log-uniform": [0.001, 0.1]}, "options.depth": {"integer": [1, 3]}}),
        quick={"epochs": 1, "trials": 2},
        published=(PublishedNumber("an epoch", 3.0, "s", "someone", "epoch_s", {"fetch_every": 2}),),
    )


def test_a_name_may_be_left_to_the_file(tmp_path):
    assert read_experiment(written(tmp_path, "[workload]\nnetwork = 'mlp'")).name == "study"


def test_an_experiment_is_a_record_like_any_other(tmp_path):
    found = read_experiment(written(tmp_path, WHOLE))
    record.save(found, tmp_path / "experiment.json")
    assert record.load(tmp_path / "experiment.json") == found


def test_published_numbers_may_be_in_a_file_beside_it(tmp_path):
    (tmp_path / "numbers.csv").write_text("label,value,unit,source,workers\nfour nodes,3.52,s,a study,3\nall,1,,,\n")
    found = read_experiment(written(tmp_path, "published = 'numbers.csv'"))
    assert found.published == (
        PublishedNumber("four nodes", 3.52, "s", "a study", "", {"workers": 3}),
        PublishedNumber("all", 1.0),
    )


def test_a_source_is_the_first_note_and_that_of_published_numbers(tmp_path):
    text = "source = 'A. Author, “Work”, 2017'\nnotes = ['More.']\n[[published]]\nlabel = 'x'\nvalue = 1\n"
    found = read_experiment(written(tmp_path, text + "[[published]]\nlabel = 'y'\nvalue = 2\nsource = 'B'\n"))
    assert found.notes == ("Source: A. Author, “Work”, 2017.", "More.")
    assert [number.source for number in found.published] == ["A. Author, “Work”, 2017", "B"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("repetition = 3", "an experiment has no 'repetition': did you mean repetitions?"),
        ("network = 'mlp'", "an experiment has no 'network': it belongs in [workload], or in [grid] as a list"),
        ("push-every = 2", "an experiment has no 'push-every': it belongs in [strategy], or in [grid] as a list"),
        ("[workload\nnetwork", "not valid TOML: "),
        (WHOLE[: WHOLE.index("1, 2]")], "not valid TOML: "),
        ("workload = 3", "workload=3 should be a table, [workload]"),
        ("grid = 3", "grid=3 should be a table, [grid], or several, [[grid]]"),
        ("grid = []", "[grid] is empty"),
        ("[grid]", "[grid] is empty"),
        ("kind = 'train'\n[run]\nkind = 'train'", "kind is given twice"),
        ("[workload]\nepochs = 2020-01-01", "workload.epochs=2020-01-01 is a date"),
        ("[strategy]\ncompute-time = 'gama:1'", ": [strategy] compute_time='gama:1' should be constant:SECONDS, "),
        ("[random]\nlr = { uniform = [0, 1] }", "[random] needs trials = N"),
        ("published = 'none.csv'", "none.csv cannot be read: No such file or directory"),
        ("published = 3", "published=3 should be a list of tables"),
        ("source = 3", "source=3 should be text"),
        ("[[published]]\nlabel = 'x'", "[[published]] 1: value is missing"),
        ("[[published]]\nlabel = 'x'\nvalue = 'y'", "value='y' should be a number"),
        ("[[published]]\nlable = 'x'", "[[published]] 1: no key 'lable' in a published number: did you mean label"),
        ("[[published]]\nlabel = 'x'\nvalue = 1\nwhere = { worker = 1 }", "did you mean workers"),
    ],
)
def test_a_mistake_names_the_file(tmp_path, text, words):
    line = refused(written(tmp_path, text))
    assert words in line and line.startswith(str(tmp_path / "study.toml"))


def test_a_file_that_is_not_there_or_no_file(tmp_path):
    assert refused(tmp_path / "none.toml").endswith("none.toml: no such file")
    assert "is a directory" in refused(tmp_path)
    assert "ending in .toml" in refused(tmp_path / "study.txt")


def test_differences_are_told_in_words(tmp_path):
    before = read_experiment(written(tmp_path, WHOLE))
    after = read_experiment(
        written(
            tmp_path,
            WHOLE.replace('title = "Everything', 'title = "Nothing')
            .replace("value = 3", "value = 4")
            .replace("[1, 2]", "[1, 4]")
            .replace("repetitions = 3", "repetitions = 4")
            .replace("[8, 8]", "[9]"),
        )
    )
    assert changed(record.to_json(before), record.to_json(before)) == []
    assert changed(record.to_json(before), record.to_json(after)) == [
        "workload.options.hidden was [8, 8] and is [9]",
        "grid 1.workers was [1, 2] and is [1, 4]",
        "repetitions was 3 and is 4",
    ]
