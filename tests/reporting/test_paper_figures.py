"""The figures of a page as files for a paper."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image

from paceline.errors import OutputError
from paceline.reporting.page import page_of
from paceline.reporting.paper_figures import write_figures
from paceline.results.comparison_rows import PredictionRow, PublishedRow
from paceline.results.records import Records
from tests.reporting.examples import EVIL, a_measurement, a_virtual_run
from tests.reporting.test_page import evil_records


@pytest.mark.slow
def test_every_figure_is_there_as_png_and_svg(tmp_path):
    records = Records(
        runs=[(f"r{w}", a_virtual_run("downpour", w)) for w in (2, 4)],
        measurements=[("m", a_measurement())],
        predictions=[PredictionRow("a $x$", 1.0, 0.5, 2.0, 1.1), PredictionRow("b", 2.0)],
        published=[PublishedRow("a", 1.0, 2.0, "s"), PublishedRow("b", 1.0, 2.0, "%")],
        price=1.0,
    )
    page = page_of(records)
    paths = write_figures(page.figures, tmp_path / "new" / "figures")
    assert {path.suffix for path in paths} == {".png", ".svg"} and len(paths) == len(set(paths))
    names = {path.stem for path in paths if path.suffix == ".svg"}
    expected = {"throughput", "efficiency", "staleness", "timeline", "layers", "parts", "published-s", "predictions"}
    assert expected <= names and "accuracy-time-test-accuracy" in names
    for path in paths:
        if path.suffix == ".png":
            assert min(Image.open(path).size) > 200
        else:
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert "a $x$" in (tmp_path / "new" / "figures" / "predictions.svg").read_text(encoding="utf-8")


def test_hostile_names_are_text_in_drawings_and_no_part_of_file_names(tmp_path):
    paths = write_figures(page_of(evil_records()).figures, tmp_path)
    assert all(path.parent == tmp_path and EVIL not in path.name and "<" not in path.name for path in paths)
    for path in paths:
        if path.suffix == ".svg":
            assert not [e for e in ElementTree.parse(path).getroot().iter() if e.tag.endswith(("script", "img"))]


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="`figures="):
        write_figures(page_of(Records(measurements=[("m", a_measurement())])).figures, tmp_path / "file")
