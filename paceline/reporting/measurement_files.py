"""A measurement as files: tables for a spreadsheet, a trace for Perfetto, and plots."""

from __future__ import annotations

from pathlib import Path

from paceline import record
from paceline.measurement.measurement import Measurement
from paceline.reporting.chrome_trace import chrome_trace
from paceline.reporting.experiment_table import TrainingContext, context_of, experiment_csv
from paceline.reporting.measurement_plots import write_plots
from paceline.results.csv_text import csv_text


def write_measurement(m: Measurement, directory: Path, experiment: TrainingContext | None = None) -> list[Path]:
    """Everything about a measurement, into `directory`; the paths that were written."""
    record.save(m, directory / "measurement.json")
    return [directory / "measurement.json", *write_tables(m, directory, experiment)]


def write_tables(m: Measurement, directory: Path, experiment: TrainingContext | None = None) -> list[Path]:
    """What is made from the record, and from the `experiment` around it where more is known than the record tells."""
    texts = {
        "layers.csv": layers_csv(m),
        "iterations.csv": iterations_csv(m),
        "experiment.csv": experiment_csv(m, experiment or context_of(m), directory),
        "trace.json": chrome_trace(m.trace),
    }
    for name, text in texts.items():
        record.write_atomically(directory / name, text)
    return [*(directory / name for name in texts), *write_plots(m, directory)]


def layers_csv(m: Measurement) -> str:
    header = ["iteration", "device", "layer", "forward_s", "backward_s", "update_s"]
    return csv_text(header, ([s.number, m.device, s.layer, s.forward_s, s.backward_s, s.update_s] for s in m.samples))


def iterations_csv(m: Measurement) -> str:
    header = ["iteration", "device", "seconds", "sampled", "loss", "top-1", "top-n"]
    rows = ([k.number, m.device, k.seconds, int(k.sampled), k.loss, k.top_1, k.top_n] for k in m.kept)
    return csv_text(header, rows)
