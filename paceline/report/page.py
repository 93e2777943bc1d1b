"""One run as one HTML page: self-contained, readable in light and dark, on a phone and in print."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from paceline.record import write_atomically
from paceline.report.chart import Series, line_chart
from paceline.train.run import Run


def write_summary(run: Run, directory: Path) -> Path:
    """Writes `summary.html` into the run's directory and returns its path."""
    path = directory / "summary.html"
    write_atomically(path, summary_page(run))
    return path


def summary_page(run: Run) -> str:
    template = files("paceline.report").joinpath("summary.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        run=run,
        answer=answer(run),
        accuracy_chart=Markup(_accuracy_chart(run)),
        loss_chart=Markup(_loss_chart(run)),
        staleness_chart=Markup(_staleness_chart(run)),
        parts=time_parts(run),
        settings={**vars(run.workload)},
        percent=_percent,
        number=_number,
        rate=_rate,
    )


def answer(run: Run) -> str:
    """The result in one sentence."""
    seconds = f"{run.wall_s:.1f} seconds" if run.wall_s < 120 else f"{run.wall_s / 60:.1f} minutes"
    where = run.conditions.device_name
    if run.status != "finished":
        what = {"diverged": "diverged", "running": "was still running"}.get(run.status, f"was {run.status}")
        return f"{run.workload.network} on {run.workload.data} {what} after {run.updates:,} updates, {seconds}."
    if math.isnan(run.test_accuracy):
        reached = f"reached a test loss of {run.test_loss:.4f}"
    else:
        reached = f"classifies {_percent(run.test_accuracy)} of the test samples correctly"
    epochs = f"{len(run.epochs)} epoch{'s' * (len(run.epochs) != 1)}"
    speed = f"; it trained on {_rate(run.samples_per_s)} samples a second" if math.isfinite(run.samples_per_s) else ""
    return f"After {epochs} and {seconds} on {where}, {run.workload.network} {reached}{speed}."


def time_parts(run: Run) -> list[tuple[str, float, float]]:
    """(what, seconds, share) of this process's wall clock; what no span covers is shown as such."""
    spans = [span for span in run.trace.spans if span.who == "main"]  # those of workers overlap, or are simulated
    total = max((span.end_s for span in spans), default=0.0)
    if not total:
        return []
    names = {
        "load": "loading data", "prepare": "preparing the step", "start": "starting processes", "train": "training",
        "validate": "validating",
    }  # fmt: skip
    inside = sum(s.duration_s for s in spans if s.what == "checkpoint" and _within_training(run, s.start_s))
    seconds = {
        what: sum(s.duration_s for s in spans if s.what == what) for what in dict.fromkeys(s.what for s in spans)
    }
    if "train" in seconds:
        seconds["train"] -= inside
    seconds["not attributed"] = total - sum(seconds.values())
    names["checkpoint"] = "writing checkpoints"
    return [(names.get(what, what), s, s / total) for what, s in seconds.items()]


def _within_training(run: Run, moment_s: float) -> bool:
    return any(s.what == "train" and s.start_s <= moment_s <= s.end_s for s in run.trace.spans)


def _accuracy_chart(run: Run) -> str:
    epochs = [float(e.epoch) for e in run.epochs]
    train = Series("training", epochs, [100 * e.train_accuracy for e in run.epochs])
    test = Series("test", epochs, [100 * e.test_accuracy for e in run.epochs])
    return line_chart("Accuracy, %, by epoch", [train, test], "epoch", "%")


def _loss_chart(run: Run) -> str:
    epochs = [float(e.epoch) for e in run.epochs]
    train = Series("training", epochs, [e.loss for e in run.epochs])
    test = Series("test", epochs, [e.test_loss for e in run.epochs])
    return line_chart("Loss by epoch", [train, test], "epoch", "")


def _staleness_chart(run: Run) -> str:
    if run.distribution is None or len(run.distribution.ledger.staleness) < 2:
        return ""
    counts = run.distribution.ledger.staleness
    everything = sum(counts.values())
    stale = [float(updates) for updates in counts]
    shares = Series("share", stale, [100 * count / everything for count in counts.values()])
    return line_chart("Payloads, %, by staleness in updates", [shares], "staleness", "%")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if math.isfinite(share) else "–"


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "–"


def _rate(samples_per_s: float) -> str:
    return f"{samples_per_s:,.0f}" if math.isfinite(samples_per_s) else "–"
