"""Paceline: where training time goes, how long it takes elsewhere, how to distribute it, and was that right?

The public names are listed here by hand and fetched when first used: importing this package does no work.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.api.simulate import simulate
    from paceline.api.train import resume, train
    from paceline.data.dataset import Arrays, Dataset
    from paceline.errors import PacelineError
    from paceline.measurement.layer_clock import LayerClock
    from paceline.measurement.measurement import Measurement
    from paceline.results.loading import load
    from paceline.step.optimizers import Rule
    from paceline.step.phase import LossPhase, Outcome, Phase
    from paceline.strategy.exchange import Exchange
    from paceline.strategy.presets import find_strategy
    from paceline.strategy.strategy import Strategy
    from paceline.trace import Span, Trace
    from paceline.training.evaluate import Evaluation, evaluate
    from paceline.training.measured_training import TrainingClock
    from paceline.training.run import Run
    from paceline.workload import Workload, resolve

_HOMES = {
    "Arrays": "paceline.data.dataset",
    "Dataset": "paceline.data.dataset",
    "Evaluation": "paceline.training.evaluate",
    "Exchange": "paceline.strategy.exchange",
    "LayerClock": "paceline.measurement.layer_clock",
    "LossPhase": "paceline.step.phase",
    "Measurement": "paceline.measurement.measurement",
    "Outcome": "paceline.step.phase",
    "PacelineError": "paceline.errors",
    "Phase": "paceline.step.phase",
    "Rule": "paceline.step.optimizers",
    "Run": "paceline.training.run",
    "Span": "paceline.trace",
    "Strategy": "paceline.strategy.strategy",
    "Trace": "paceline.trace",
    "TrainingClock": "paceline.training.measured_training",
    "Workload": "paceline.workload",
    "evaluate": "paceline.training.evaluate",
    "find_strategy": "paceline.strategy.presets",
    "load": "paceline.results.loading",
    "resolve": "paceline.workload",
    "resume": "paceline.api.train",
    "simulate": "paceline.api.simulate",
    "train": "paceline.api.train",
}

__all__ = [
    "Arrays",
    "Dataset",
    "Evaluation",
    "Exchange",
    "LayerClock",
    "LossPhase",
    "Measurement",
    "Outcome",
    "PacelineError",
    "Phase",
    "Rule",
    "Run",
    "Span",
    "Strategy",
    "Trace",
    "TrainingClock",
    "Workload",
    "evaluate",
    "find_strategy",
    "load",
    "resolve",
    "resume",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
