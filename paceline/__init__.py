"""Paceline: where training time goes, how long it takes elsewhere, how to distribute it, and was that right?

The public names are listed here by hand and fetched when first used: importing this package does no work.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.advice.advice import Advice
    from paceline.advice.task import TaskDescription
    from paceline.api.advise import advise
    from paceline.api.calibrate import calibrate
    from paceline.api.compare import compare
    from paceline.api.deploy import deploy
    from paceline.api.draw import draw
    from paceline.api.evaluate import evaluate
    from paceline.api.listing import datasets, devices, links, machines, models, strategies, studies
    from paceline.api.load_dataset import load_dataset
    from paceline.api.measure import measure, measure_links
    from paceline.api.plan import plan
    from paceline.api.predict import predict
    from paceline.api.predict_divided import predict_divided
    from paceline.api.predict_pipeline import predict_pipeline
    from paceline.api.replay import replay
    from paceline.api.report import report
    from paceline.api.reproduce import reproduce
    from paceline.api.simulate import simulate
    from paceline.api.train import resume, train
    from paceline.api.verify import verify
    from paceline.cluster import Cluster, Device, Link, Machine
    from paceline.cost.calibration import Calibration
    from paceline.cost.prediction import Prediction
    from paceline.cost.verification import Verification
    from paceline.data.dataset import Arrays, Dataset
    from paceline.errors import InputError, PacelineError
    from paceline.experiment.experiment import Experiment
    from paceline.measurement.layer_clock import LayerClock
    from paceline.measurement.measurement import Measurement
    from paceline.planning.plan import Plan
    from paceline.results.table import ResultsTable, collect, load
    from paceline.simulation.scaling import Scaling
    from paceline.step.optimizers import Rule
    from paceline.step.phase import LossPhase, Outcome, Phase
    from paceline.strategy.correction import Late
    from paceline.strategy.exchange import Exchange, Replica
    from paceline.strategy.presets import find_strategy
    from paceline.strategy.strategy import Strategy
    from paceline.trace import Span, Trace
    from paceline.training.evaluate import Evaluation
    from paceline.training.measured_training import TrainingClock
    from paceline.training.run import Run
    from paceline.workload import Workload, resolve

_HOMES = {
    "Advice": "paceline.advice.advice",
    "Arrays": "paceline.data.dataset",
    "Calibration": "paceline.cost.calibration",
    "Cluster": "paceline.cluster",
    "Dataset": "paceline.data.dataset",
    "Device": "paceline.cluster",
    "Evaluation": "paceline.training.evaluate",
    "Exchange": "paceline.strategy.exchange",
    "Experiment": "paceline.experiment.experiment",
    "InputError": "paceline.errors",
    "Late": "paceline.strategy.correction",
    "LayerClock": "paceline.measurement.layer_clock",
    "Link": "paceline.cluster",
    "LossPhase": "paceline.step.phase",
    "Machine": "paceline.cluster",
    "Measurement": "paceline.measurement.measurement",
    "Outcome": "paceline.step.phase",
    "PacelineError": "paceline.errors",
    "Phase": "paceline.step.phase",
    "Plan": "paceline.planning.plan",
    "Prediction": "paceline.cost.prediction",
    "Replica": "paceline.strategy.exchange",
    "ResultsTable": "paceline.results.table",
    "Rule": "paceline.step.optimizers",
    "Run": "paceline.training.run",
    "Scaling": "paceline.simulation.scaling",
    "Span": "paceline.trace",
    "Strategy": "paceline.strategy.strategy",
    "TaskDescription": "paceline.advice.task",
    "Trace": "paceline.trace",
    "TrainingClock": "paceline.training.measured_training",
    "Verification": "paceline.cost.verification",
    "Workload": "paceline.workload",
    "advise": "paceline.api.advise",
    "calibrate": "paceline.api.calibrate",
    "collect": "paceline.results.table",
    "compare": "paceline.api.compare",
    "datasets": "paceline.api.listing",
    "deploy": "paceline.api.deploy",
    "devices": "paceline.api.listing",
    "draw": "paceline.api.draw",
    "evaluate": "paceline.api.evaluate",
    "find_strategy": "paceline.strategy.presets",
    "links": "paceline.api.listing",
    "load": "paceline.results.table",
    "load_dataset": "paceline.api.load_dataset",
    "machines": "paceline.api.listing",
    "measure": "paceline.api.measure",
    "measure_links": "paceline.api.measure",
    "models": "paceline.api.listing",
    "plan": "paceline.api.plan",
    "predict": "paceline.api.predict",
    "predict_divided": "paceline.api.predict_divided",
    "predict_pipeline": "paceline.api.predict_pipeline",
    "replay": "paceline.api.replay",
    "report": "paceline.api.report",
    "reproduce": "paceline.api.reproduce",
    "resolve": "paceline.workload",
    "resume": "paceline.api.train",
    "simulate": "paceline.api.simulate",
    "strategies": "paceline.api.listing",
    "studies": "paceline.api.listing",
    "train": "paceline.api.train",
    "verify": "paceline.api.verify",
}

__all__ = [
    "Advice",
    "Arrays",
    "Calibration",
    "Cluster",
    "Dataset",
    "Device",
    "Evaluation",
    "Exchange",
    "Experiment",
    "InputError",
    "Late",
    "LayerClock",
    "Link",
    "LossPhase",
    "Machine",
    "Measurement",
    "Outcome",
    "PacelineError",
    "Phase",
    "Plan",
    "Prediction",
    "Replica",
    "ResultsTable",
    "Rule",
    "Run",
    "Scaling",
    "Span",
    "Strategy",
    "TaskDescription",
    "Trace",
    "TrainingClock",
    "Verification",
    "Workload",
    "advise",
    "calibrate",
    "collect",
    "compare",
    "datasets",
    "deploy",
    "devices",
    "draw",
    "evaluate",
    "find_strategy",
    "links",
    "load",
    "load_dataset",
    "machines",
    "measure",
    "measure_links",
    "models",
    "plan",
    "predict",
    "predict_divided",
    "predict_pipeline",
    "replay",
    "report",
    "reproduce",
    "resolve",
    "resume",
    "simulate",
    "strategies",
    "studies",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
