"""`paceline reproduce`: published studies by name, each made again by one command that may be interrupted."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.measurement.links import LinkMeasurement, LinkSpeed
from paceline.reproduction.study import NAMES, Study
from tests.own_process import OwnProcess

# Stand-ins on a bus, a fraction of a second each.
TINY = """
import sys
from dataclasses import replace
from paceline.cli import entry
from paceline.reproduction import study

quick = study.Study.experiment

def tiny(self, *, quick, cache=None, make=quick):
    made = make(self, quick=quick, cache=cache)
    return replace(made, grid=made.grid[:1], run={{**made.run, "refresh": {refresh}, "compute": {compute}}})

study.Study.experiment = tiny
entry()
"""


@pytest.fixture
def tiny_study(monkeypatch):
    """The study of transfers, without its networks and in no time."""
    whole = Study.experiment

    def tiny(self, *, quick, cache=None):
        made = whole(self, quick=quick, cache=cache)
        return replace(made, grid=made.grid[:1], run={**made.run, "refresh": 0.001, "compute": 0.002})

    monkeypatch.setattr(Study, "experiment", tiny)
    links = LinkMeasurement((LinkSpeed("disk to host", 1e-4, 2e9),), {})
    monkeypatch.setattr("paceline.reproduction.transfer.measure_links", lambda *_: links)


def test_studies_are_listed_with_a_line_each(paceline):
    result = paceline("reproduce")
    assert result.code == 0 and result.err == ""
    assert [line.split()[0] for line in result.out.splitlines()[1:]] == list(NAMES)
    listed = paceline("reproduce", "--json", "-").json
    assert [study["name"] for study in listed] == list(NAMES) and all(study["title"] for study in listed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["elgatto"], "no study 'elgatto': did you mean elgato?"),
        (["downpour", "--out", "a", "--resume", "b"], "--out and --resume cannot be combined"),
        (["--resume", "none"], "none: no such directory"),
        (["--quick"], "name a study"),
        (["transfer", "--jobs", "0"], "jobs=0 should be at least 1"),
    ],
)
def test_what_cannot_be_done_as_asked(paceline, tmp_path, arguments, words):
    assert words in paceline("reproduce", *arguments).refused()
    assert list(tmp_path.iterdir()) == []


def test_a_study_ends_in_a_report_and_can_be_gone_on_with(paceline, tiny_study, tmp_path):
    result = paceline("reproduce", "transfer", "--quick", "--out", "study", "--json", "found.json")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0] == "8 runs, in study" and lines[-1].startswith("report: study/report.html (")
    assert any(line.startswith("Prefetching ") for line in lines)
    page = (tmp_path / "study" / "report.html").read_text()
    assert "About this experiment" in page and "This is the quick version" in page and "PCIe 4.0 x16, published" in page

    again = paceline("reproduce", "--resume", "study", "--json", "-")
    assert again.code == 0 and "8 runs, 8 of them done already, in study" in again.err
    assert again.json["study"] == "transfer" and len(again.json["rows"]) == 8
    assert [row["published"] for row in again.json["published"]][:2] == [0.253968, 0.7619]
    # The page can be made again from the directory alone, by the usual command.
    assert paceline("report", "study", "--out", "again.html").code == 0
    assert "Prefetching " in (tmp_path / "again.html").read_text()

    assert paceline("reproduce", "elgato", "--resume", "study").refused() == "study holds transfer, not elgato"
    assert "holds this experiment already" in paceline("reproduce", "transfer", "--quick", "--out", "study").refused()


@pytest.mark.slow
def test_only_studies_are_gone_on_with(paceline, tmp_path):
    (tmp_path / "mine.toml").write_text('[workload]\nnetwork = "dnn"\ndata = "digits:100"\nepochs = 1\n')
    assert paceline("compare", "mine.toml", "--out", "mine").code == 0
    line = paceline("reproduce", "--resume", "mine").refused()
    assert line == "mine holds mine, which is not a study: use paceline compare --resume mine"


@pytest.mark.slow
def test_a_study_that_is_interrupted_says_how_to_go_on(paceline, tmp_path):
    words = ["-c", TINY.format(refresh=0.02, compute=0.04), "reproduce", "transfer", "--quick", "--out", "study"]
    with OwnProcess(words, cwd=tmp_path, session=True) as process:
        until_s = time.monotonic() + 120
        while not list(tmp_path.glob("study/runs/*")):
            assert time.monotonic() < until_s and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode == 130, said
    assert said.strip().endswith("of 8 runs; continue with: paceline reproduce --resume study")
    finished = {path.name for path in Path(tmp_path / "study" / "runs").iterdir()}
    times = {name: (tmp_path / "study" / "runs" / name / "outcome.json").stat().st_mtime_ns for name in finished}

    done = paceline("reproduce", "--resume", "study")
    assert done.code == 0, done.err
    assert (tmp_path / "study" / "report.html").exists()
    for name, changed in times.items():
        assert (tmp_path / "study" / "runs" / name / "outcome.json").stat().st_mtime_ns == changed, "made once"
