"""A measurement as files: tables for a spreadsheet, a trace for Perfetto, and plots."""

from __future__ import annotations

from pathlib import Path

from paceline import record
from paceline.measurement.measurement import Measurement
from paceline.reporting.chrome_trace import chrome_trace
from paceline.reporting.experiment_table import TrainingContext, context_of, experiment_csv
from paceline.reporting.paper_figures import write_figures
from paceline.reporting.sections.layers import measurement_figures
from paceline.results.csv_text import csv_text

EXPERIMENT = "experiment.csv"


def write_measurement(m: Measurement, directory: Path, experiment: TrainingContext | None = None) -> list[Path]:
    """Everything about a measurement, into `directory`; the paths that were written."""
    record.save(m, directory / "measurement.json")
    return [directory / "measurement.json", *write_tables(m, directory, experiment)]


def write_tables(
    m: Measurement, directory: Path, experiment: TrainingContext | None = None, saved: Path | None = None
) -> list[Path]:
    """What is made from the record, and from the `experiment` around it where more is known than the record tells.

    A measurement that was `saved` in a directory keeps the experiment.csv that is there.
    """
    kept = saved / EXPERIMENT if saved is not None and (saved / EXPERIMENT).is_file() else None
    texts = {
        "layers.csv": layers_csv(m),
        "iterations.csv": iterations_csv(m),
        EXPERIMENT: kept.read_text() if kept else experiment_csv(m, experiment or context_of(m), directory),
        "trace.json": chrome_trace(m.trace),
    }
    for name, text in texts.items():
        record.write_atomically(directory / name, text)
    drawn = write_figures(measurement_figures([(m.name, m)]), directory, "out")
    return [*(directory / name for name in texts), *drawn]


def layers_csv(m: Measurement) -> str:
    header = ["iteration", "device", "layer", "forward_s", "backward_s", "update_s"]
    return csv_text(header, ([s.number, m.device, s.layer, s.forward_s, s.backward_s, s.update_s] for s in m.samples))


def iterations_csv(m: Measurement) -> str:
    header = ["iteration", "device", "seconds", "sampled", "loss", "top-1", "top-n"]
    rows = ([k.number, m.device, k.seconds, int(k.sampled), k.loss, k.top_1, k.top_n] for k in m.kept)
    return csv_text(header, rows)
