"""Feeds Ray's metrics with a run's progress: its dashboard and Prometheus show what the terminal does."""

from __future__ import annotations

import importlib
import math

from paceline.training.watcher import Progress

GAUGES = {
    "samples_per_second": "Training samples per second, over the whole run.",
    "updates_per_second": "Updates of the parameters per second, of late.",
    "staleness": "Mean staleness of the payloads: updates between a worker's fetch and its push.",
    "workers": "Workers that take part now.",
    "epoch": "Epochs that are done, and the share of the one under way.",
    "loss": "Mean training loss of the epoch under way.",
}
"""By name; Ray puts its own prefix before `paceline_NAME`."""
TAGS = ("network", "strategy")


class RunMetrics:
    def __init__(self, network: str, strategy: str) -> None:
        make = importlib.import_module("ray.util.metrics").Gauge
        self.gauges = {
            name: make(f"paceline_{name}", description=description, tag_keys=TAGS)
            for name, description in GAUGES.items()
        }
        for gauge in self.gauges.values():
            gauge.set_default_tags({"network": network, "strategy": strategy})

    def show(self, progress: Progress) -> None:
        values = {
            "samples_per_second": progress.samples_per_s,
            "epoch": progress.epoch + progress.step / max(progress.steps, 1),
            "loss": progress.score.loss,
        }
        if (workers := progress.workers) is not None:
            values |= {"updates_per_second": workers.updates_per_s, "workers": workers.alive}
            values["staleness"] = workers.staleness
        for name, value in values.items():
            if math.isfinite(value):
                self.gauges[name].set(float(value))
