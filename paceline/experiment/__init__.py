"""Experiments: grids, random searches and repetitions of runs, executed so that they survive interruption."""

from __future__ import annotations

from paceline.experiment.executing import execute
from paceline.experiment.experiment import Experiment
from paceline.experiment.experiment_directory import saved_experiment
from paceline.experiment.planning import PlannedRun
from paceline.experiment.random_search import RandomSearch
from paceline.experiment.reading import experiment_of, read_experiment
from paceline.results.comparison_rows import PublishedNumber
from paceline.results.outcome import RunOutcome
from paceline.results.table import ResultsTable, collect

__all__ = [
    "Experiment",
    "PlannedRun",
    "PublishedNumber",
    "RandomSearch",
    "ResultsTable",
    "RunOutcome",
    "collect",
    "execute",
    "experiment_of",
    "read_experiment",
    "saved_experiment",
]
