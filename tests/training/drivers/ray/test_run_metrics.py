"""What a run shows is given to Ray's metrics under documented names."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.step.tally import Score
from paceline.training.drivers.ray.run_metrics import GAUGES, RunMetrics
from paceline.training.watcher import Progress, WorkersProgress

PAGE = Path(__file__).parents[4] / "docs" / "cluster.md"


@pytest.fixture
def gauges(monkeypatch) -> dict[str, SimpleNamespace]:
    made: dict[str, SimpleNamespace] = {}

    def gauge(name, description, tag_keys):
        found = made[name] = SimpleNamespace(values=[], tags={}, keys=tag_keys)
        found.set, found.set_default_tags = found.values.append, found.tags.update
        return found

    monkeypatch.setitem(sys.modules, "ray.util.metrics", SimpleNamespace(Gauge=gauge))
    return made


def progress(loss: float) -> Progress:
    score = Score(loss * 10, 10) if math.isfinite(loss) else Score()
    return Progress(2, 5, 30, 60, score, 1234.0, WorkersProgress(3, 4, 56.0, 0.5))


def test_every_gauge_gets_its_value(gauges):
    RunMetrics("mlp", "downpour").show(progress(0.25))
    assert {name: gauge.values for name, gauge in gauges.items()} == {
        "paceline_samples_per_second": [1234.0],
        "paceline_updates_per_second": [56.0],
        "paceline_staleness": [0.5],
        "paceline_workers": [3.0],
        "paceline_epoch": [2.5],
        "paceline_loss": [0.25],
    }
    assert all(gauge.tags == {"network": "mlp", "strategy": "downpour"} for gauge in gauges.values())
    assert all(set(gauge.tags) == set(gauge.keys) for gauge in gauges.values())


def test_what_has_no_value_yet_is_not_given(gauges):
    RunMetrics("mlp", "sync").show(progress(math.nan))
    assert gauges["paceline_loss"].values == [] and gauges["paceline_workers"].values == [3.0]


def test_the_names_are_documented():
    assert all(f"`ray_paceline_{name}`" in PAGE.read_text(encoding="utf-8") for name in GAUGES)
