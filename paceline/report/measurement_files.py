"""A measurement as files: tables for a spreadsheet, a trace for Perfetto, and plots."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from paceline import record
from paceline.measure.measurement import Measurement
from paceline.report.chrome_trace import chrome_trace
from paceline.report.measurement_plots import write_plots


def write_measurement(m: Measurement, directory: Path) -> list[Path]:
    """Everything about a measurement, into `directory`; the paths that were written."""
    record.save(m, directory / "measurement.json")
    return [directory / "measurement.json", *write_tables(m, directory)]


def write_tables(m: Measurement, directory: Path) -> list[Path]:
    """What can be made again from the record alone."""
    texts = {
        "layers.csv": layers_csv(m),
        "iterations.csv": iterations_csv(m),
        "experiment.csv": experiment_csv(m, directory),
        "trace.json": chrome_trace(m.trace),
    }
    for name, text in texts.items():
        record.write_atomically(directory / name, text)
    return [*(directory / name for name in texts), *write_plots(m, directory)]


def _csv(header: list[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def layers_csv(m: Measurement) -> str:
    header = ["iteration", "device", "layer", "forward_s", "backward_s", "update_s"]
    return _csv(header, ([s.number, m.device, s.layer, s.forward_s, s.backward_s, s.update_s] for s in m.samples))


def iterations_csv(m: Measurement) -> str:
    header = ["iteration", "device", "seconds", "sampled", "loss", "top-1", "top-n"]
    rows = ([k.number, m.device, k.seconds, int(k.sampled), k.loss, k.top_1, k.top_n] for k in m.kept)
    return _csv(header, rows)


def experiment_csv(m: Measurement, directory: Path) -> str:
    """One row: the configuration, how long it took, and when a quarter, half and so on of it was done."""
    seconds = [k.seconds for k in m.kept]
    per_iteration = m.iterations / max(1, len(seconds))
    at = {
        share: sum(seconds[: max(1, round(share * len(seconds)))]) * per_iteration for share in (0.25, 0.5, 0.75, 1.0)
    }
    row = {
        "network": m.name,
        "batch": m.batch,
        "device": m.device,
        "device_name": m.device_name,
        "step": m.step,
        "iterations": m.iterations,
        **{f"setting_{key}": value for key, value in m.conditions.items()},
        "training_s": at[1.0],
        **{f"at_{round(100 * share)}_percent_s": value for share, value in at.items()},
        "validation_s": 0.0,
        "overhead": m.overhead,
        "output": str(directory),
    }
    return _csv(list(row), [row.values()])
