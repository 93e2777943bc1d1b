"""Experiments: grids, random searches and repetitions of runs, executed so that they survive interruption."""

from __future__ import annotations

from paceline.experiment.collecting import Collection, collect
from paceline.experiment.executing import execute
from paceline.experiment.experiment import Experiment
from paceline.experiment.outcome import RunOutcome
from paceline.experiment.places import saved_experiment
from paceline.experiment.planning import PlannedRun
from paceline.experiment.published import Published
from paceline.experiment.random_search import RandomSearch
from paceline.experiment.reading import experiment_of, read_experiment

__all__ = [
    "Collection",
    "Experiment",
    "PlannedRun",
    "Published",
    "RandomSearch",
    "RunOutcome",
    "collect",
    "execute",
    "experiment_of",
    "read_experiment",
    "saved_experiment",
]
