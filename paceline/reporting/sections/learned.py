"""Figures of what runs learned, from the directories of the runs."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.reporting.figure import Picture, Section, section
from paceline.reporting.learned import FILE
from paceline.results.records import Records
from paceline.results.run_result import RunResult

MOST_PICTURES = 12
MOST_BYTES = 2 << 20
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def what_was_learned(records: Records, runs: Sequence[RunResult]) -> Section | None:
    found = [(run, png) for run in runs if (png := _png_of(records, run.place)) is not None]
    blocks = [
        Picture(f"learned-{place}", run.label, png, f"What {run.label} learned.")
        for place, (run, png) in enumerate(found[:MOST_PICTURES])
    ]
    left = f"The first {MOST_PICTURES} of {len(found)} runs are shown." if len(found) > MOST_PICTURES else ""
    return section("learned", "What was learned", (left,), blocks=blocks)


def _png_of(records: Records, place: str) -> bytes | None:
    directory = records.directories.get(place)
    if directory is None:
        return None
    file = (directory if directory.is_dir() else directory.parent) / FILE
    if not file.is_file() or file.stat().st_size > MOST_BYTES:
        return None
    png = file.read_bytes()
    return png if png.startswith(SIGNATURE) else None
