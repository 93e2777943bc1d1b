"""A workload's number of threads is its own: whoever trains or evaluates it has as many afterwards as before."""

from __future__ import annotations

import torch

import paceline
from paceline.training.measured_training import TrainingClock

SETTINGS = {"data": "digits:256", "batch": 8, "epochs": 1, "device": "cpu", "threads": 2}


def test_training_and_evaluating_leave_the_callers_threads_alone(tmp_path):
    run = paceline.train("mlp", **SETTINGS, out=tmp_path / "run")
    assert run.conditions.threads == 2 and torch.get_num_threads() == 1
    paceline.evaluate(tmp_path / "run")
    assert torch.get_num_threads() == 1


def test_simulated_workers_leave_them_alone_too():
    run = paceline.train("mlp", **SETTINGS, workers=2, driver="virtual")
    assert run.conditions.threads == 2 and torch.get_num_threads() == 1


def test_a_training_is_measured_with_the_threads_that_it_had():
    clock = TrainingClock()
    paceline.train("mlp", **SETTINGS, measure=clock)
    assert torch.get_num_threads() == 1
    assert clock.measurement().conditions["threads"] == "2" and torch.get_num_threads() == 1
