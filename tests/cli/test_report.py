"""`paceline report`: a page from whatever was saved, and one line where there is nothing to show."""

from __future__ import annotations

import pytest

from paceline import record
from tests.a_run import a_run
from tests.reporting.examples import a_measurement, a_simulation, broken_records, many_runs, save_run


def test_a_run_becomes_a_page(paceline, trained, tmp_path):
    result = paceline("report", trained, "--out", "page.html")
    assert result.code == 0 and result.err == ""
    assert result.out.startswith("1 run\nreport: page.html (0.")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "mlp reached " in page and page.endswith("</html>")


def test_records_of_every_kind_become_one_page(paceline, tmp_path):
    many_runs(tmp_path / "runs", ["sync"], [2, 4], seeds=1)
    record.save(a_measurement(), tmp_path / "m" / "measurement.json")
    record.save(a_simulation(), tmp_path / "s" / "time.json")
    result = paceline("report", "runs", "m", "s", "--title", "All of it", "--price", "2.5", "--json", "-")
    assert result.code == 0
    assert result.json["counts"] == {"runs": 2, "simulations": 1, "measurements": 1}
    assert "2 runs, 1 simulation, 1 measurement" in result.err, "what is meant for people goes elsewhere"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "All of it" in page and ">Cost</h2>" in page
    assert result.json["size_bytes"] == (tmp_path / "report.html").stat().st_size


def test_figures_for_a_paper(paceline, tmp_path):
    record.save(a_measurement(), tmp_path / "m" / "measurement.json")
    result = paceline("report", "m", "--figures", "figures")
    files = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert {"layers.png", "layers.svg", "parts.png", "parts.svg"} <= set(files)
    assert f"figures: figures ({len(files)} files)" in result.out


def test_what_is_broken_is_skipped_named_and_counted(paceline, tmp_path):
    save_run(a_run(), tmp_path / "runs" / "good")
    broken = broken_records(tmp_path / "runs" / "bad")
    result = paceline("report", "runs")
    assert result.code == 0 and f"1 run, {broken} skipped" in result.out
    lines = result.err.splitlines()
    assert len(lines) == broken and all(line.startswith("paceline: skipped runs/bad/") for line in lines)
    assert f"{broken} files could not be read" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["empty"], "no records in empty: train, measure, compare, simulate and plan save records, with --out"),
        (["missing"], "missing: no such file or directory"),
        (["broken"], "broken has one record, which cannot be read"),
        (["broken/notes.txt"], "notes.txt: not a Paceline record"),
        (["good", "--price", "-1"], "price=-1.0 should be a number of at least 0"),
        (["good", "--price", "nan"], "price=nan should be"),
        (["good", "--out", "broken/notes.txt/x.html"], "cannot write broken/notes.txt/x.html"),
        (["good", "--figures", "broken/notes.txt"], "--figures broken/notes.txt cannot be written"),
        (["good", "--json", "empty"], "--json empty is a directory"),
        ([], "Missing argument 'DIR'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(paceline, tmp_path, arguments, words):
    for folder in ("empty", "broken"):
        (tmp_path / folder).mkdir()
    (tmp_path / "broken" / "record.json").write_text("{")
    (tmp_path / "broken" / "notes.txt").write_text("mine")
    save_run(a_run(), tmp_path / "good")
    assert words in paceline("report", *arguments).refused()


def test_the_page_may_be_named_by_a_directory_and_written_again(paceline, trained, tmp_path):
    for _ in range(2):
        assert paceline("report", trained, "--out", tmp_path).code == 0
    assert (tmp_path / "report.html").exists()


def test_no_page_is_left_if_its_figures_have_no_place(paceline, tmp_path):
    save_run(a_run(), tmp_path / "good")
    result = paceline("report", "good", "--figures", "9" * 5000)
    assert result.code == 2 and "File name too long" in result.err
    assert not (tmp_path / "report.html").exists()
