"""`paceline compare`: one file, one command; what is wrong is said in one line before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.experiment.studies import table

STUDY = """
title = "Two rates"
repetitions = 2

[workload]
network = "dnn"
data = "digits:100"
epochs = 1
batch = 50

[grid]
lr = [0.01, 0.02]

[quick]
repetitions = 1
lr = 0.03

[[published]]
label = "a rate of 0.01"
value = 12.5
unit = "%"
source = "nobody"
metric = "test_accuracy"
where = { lr = 0.01 }
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def test_an_experiment_is_executed_collected_and_left_alone_when_it_is_done(paceline, study, tmp_path):
    result = paceline("compare", study, "--out", "study", "--json", "found.json")
    assert result.code == 0 and result.err == ""
    lines = result.out.splitlines()
    assert lines[0] == "4 runs, in study"
    assert [line.split()[0] for line in lines[1:5]] == ["1/4", "2/4", "3/4", "4/4"]
    assert "lr 0.01 #1  accuracy" in result.out and "a rate of 0.01" in result.out
    assert lines[-2:] == [
        "experiment: study   tables: study/results.csv, study/summary.csv",
        "page: study/report.html",
    ]
    assert Path("study/report.html").stat().st_size > 100_000
    content = json.loads((tmp_path / "found.json").read_text(), parse_constant=pytest.fail)
    assert (content["title"], len(content["rows"]), len(content["summary"])) == ("Two rates", 4, 2)
    assert Path("study/experiment.toml").read_text() == STUDY
    (published,) = table(Path("study/published.csv"))
    assert (
        published["name"] == "a rate of 0.01"
        and float(published["ours"]) == content["summary"][0]["test_accuracy_mean"]
    )

    again = paceline("compare", "--resume", "study", "--json", "-")
    assert again.json == content
    assert "4 runs, 4 of them done already, in study" in again.err

    collected = paceline("compare", "--collect", "study", "--out", "tables")
    assert collected.code == 0 and collected.out.splitlines()[-1].startswith("4 runs   tables: tables/results.csv")
    for name in ("results.csv", "summary.csv", "published.csv"):
        assert (tmp_path / "tables" / name).read_text() == (tmp_path / "study" / name).read_text()

    # A comment or a title may change, the runs may not.
    study.write_text("# better\n" + STUDY.replace("Two rates", "Rates"))
    assert paceline("compare", study, "--resume", "study", "--json", "-").json["title"] == "Rates"
    study.write_text(STUDY.replace("epochs = 1", "epochs = 2").replace("[0.01, 0.02]", "[0.01]"))
    differences = "workload.epochs was 1 and is 2; grid.lr was [0.01, 0.02] and is [0.01]"
    line = paceline("compare", study, "--resume", "study").refused()
    assert line == f"study holds another experiment: {differences}; start it with --out"
    assert (
        paceline("compare", study, "--out", "study")
        .refused()
        .startswith("--out study holds another experiment (study)")
    )
    study.write_text(STUDY)
    assert paceline("compare", study, "--out", "study").refused().endswith("continue with --resume study")
    assert "started without --quick" in paceline("compare", "--resume", "study", "--quick").refused()

    # One damaged record among good ones.
    damaged = next(iter(sorted(Path("study/runs").iterdir())))
    (damaged / "record.json").write_text("{")
    collected = paceline("compare", "--collect", "study")
    assert collected.code == 0 and "3 runs, 1 skipped; write the tables with --out DIR" in collected.out
    assert len(collected.err.splitlines()) == 1 and str(damaged) in collected.err


def test_runs_can_be_listed_without_being_made(paceline, study, tmp_path):
    result = paceline("compare", study, "--list")
    assert result.code == 0 and result.out.splitlines()[-1] == "study: 4 runs, 2 settings, in this order"
    listed = paceline("compare", study, "--list", "--quick", "--json", "-").json
    assert [(run["settings"]["lr"], run["seed"]) for run in listed] == [(0.03, 0)]
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


@pytest.mark.slow
def test_failed_runs_are_an_exit_code_and_a_line(paceline, tmp_path):
    (tmp_path / "study.toml").write_text('[workload]\nnetwork = "vgg16"\n[grid]\ndata = ["digits"]\n')
    result = paceline("compare", "study.toml", "--quick", "--out", "study")
    assert result.refused() == "study.toml: study has no section [quick]: add one with smaller values, e.g. epochs = 1"
    result = paceline("compare", "study.toml", "--out", "study")
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert line.startswith("paceline: 1 of 1 runs failed, the first with: shape (1, 8, 8) is too small for 'vgg16'")
    assert line.endswith("once it is fixed: paceline compare --resume study --retry")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[grid]\nworker = [1]", "study.toml: [grid] has no key 'worker': did you mean workers"),
        ("[grid]", "study.toml: [grid] is empty"),
        ("[grid]\nbatch = [32, 'x']", "study.toml: [grid] batch='x' should be a whole number"),
        ("[grid\nbatch", "study.toml: not valid TOML"),
        ("[workload]\nnetwork = 'mpl'", "study.toml: no network 'mpl': did you mean mlp?"),
        ("[workload]\nnetwork = 'nowhere:build'", "study.toml: no module 'nowhere'"),
        ("[strategy]\nstrategy = 'mixed'\n[grid]\nworkers = [2, 3]", "study.toml: 3 workers: 2 groups do not divide 3"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(paceline, tmp_path, text, words):
    (tmp_path / "study.toml").write_text(text)
    assert words in paceline("compare", "study.toml", "--out", "study").refused()
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"], "nothing is left behind"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name the TOML file of an experiment, or --resume one"),
        (["none.toml"], "none.toml: no such file"),
        (["."], ". is a directory"),
        (["study.toml", "study.toml"], "one experiment at a time"),
        (["study.toml", "--jobs", "0"], "jobs=0 should be at least 1"),
        (["study.toml", "--out", "study.toml"], "--out study.toml is a file"),
        (["study.toml", "--out", "."], "--out . is not empty"),
        (["--resume", "none"], "none: no such directory"),
        (["--resume", "."], ". holds no experiment: start one with --out"),
        (["--collect"], "name at least one directory"),
        (["--collect", "none"], "none: no such file or directory"),
        (["--collect", "."], "no records in ."),
        (["--collect", ".", "--quick"], "--collect runs nothing: only --out and --json"),
        (["--collect", ".", "--out", "study.toml"], "--out study.toml is a file"),
    ],
)
def test_what_cannot_be_done_as_asked(paceline, study, tmp_path, arguments, words):
    assert words in paceline("compare", *arguments).refused()
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"], "nothing is left behind"


@pytest.mark.slow
def test_the_example_is_an_experiment_that_can_be_tried_quickly(paceline):
    example = Path(__file__).parents[2] / "examples" / "strategies.toml"
    assert paceline("compare", example, "--list").out.splitlines()[-1].startswith("strategies: 39 runs, 13 settings")
    result = paceline("compare", example, "--quick", "--out", "study", "--json", "-")
    assert result.code == 0, result.err
    assert {row["status"] for row in result.json["rows"]} == {"finished"} and len(result.json["rows"]) == 9
