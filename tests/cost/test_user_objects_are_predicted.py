"""A network with several inputs, a loss of its own or outputs as Hugging Face's is traced without being run."""

from __future__ import annotations

import pytest

from paceline.cost.workload_tracing import data_shape_of, trace_workload
from paceline.workload import Workload

HERE = "tests.step.user_objects"


def traced(network: str, source: str, **settings):
    given = {key: f"{HERE}:{value}" if key == "loss" else value for key, value in settings.items()}
    workload = Workload(network=f"{HERE}:{network}", data=f"{HERE}:{source}", batch=16, **given)
    return trace_workload(workload, data_shape_of(workload))


@pytest.mark.parametrize(
    ("network", "source", "loss"),
    [
        ("TokenClassifier", "pair_of_named", None),
        ("WithOutputs", "pair_of_dictionaries", None),
        ("TwoInputs", "two_inputs", None),
        ("Autoencoder", "no_target", "reconstruction"),
        ("classifier", "pair_of_datasets", "smooth"),
    ],
)
def test_the_operations_of_one_gradient_are_found(network: str, source: str, loss: str | None):
    found = traced(network, source, **({} if loss is None else {"loss": loss}))
    linear = [o for o in found.operations if o.family == "matmul"]
    assert {o.direction for o in linear} == {"forward", "backward"}
    assert all(16 in o.sizes for o in linear), "the batch is one of every product's sizes"
