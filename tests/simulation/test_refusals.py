"""A simulated run that only ever refuses payloads does not go on to its end as if nothing were wrong."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import Diverged
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.step.build import assemble, load_data
from paceline.strategy.presets import find_strategy
from paceline.testing.contract import simulate_training
from paceline.workload import resolve


@pytest.mark.parametrize(("policy", "message"), [("skip", "100 payloads in a row"), ("stop", "is not finite")])
def test_payloads_that_are_never_numbers_end_the_run(policy, message):
    settings = {"data": "digits", "batch": 8, "epochs": 2, "optimizer": "sgd", "lr": 1e30, "device": "cpu"}
    workload = resolve("dnn", settings)
    parts = assemble(workload, load_data(workload), torch.device("cpu"))
    with pytest.raises(Diverged, match=message):
        simulate_training(parts, find_strategy("downpour"), 2, VirtualCluster(), on_bad_gradient=policy)
