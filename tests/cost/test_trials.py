"""A trial times what a network runs: tracing it returns the family and the sampled sizes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.cost.families import FAMILIES, Sizes
from paceline.cost.op_classification import classify_op
from paceline.cost.shape_sampling import TRIALS, Limits, sample_shape
from paceline.cost.trials import calls_of

SMALL = Limits(5e6, 2.0**17)


class _Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[str, Sizes]] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        output = function(*arguments, **(keywords or {}))
        found = classify_op(function.__name__.partition(".")[0], arguments, output)
        if found is not None:
            assert found[2], f"{function} is of no known family"
            self.operations.append((found[0], tuple(map(int, found[1]))))
        return output


@pytest.mark.parametrize("kind", TRIALS)
def test_a_trial_runs_the_operation_it_is_named_for(kind):
    rng = random.Random(1)
    for _ in range(6):
        sizes = sample_shape(kind, rng, SMALL)
        for family, call in calls_of(kind, sizes, torch.device("cpu"), torch.float32).items():
            with _Seen() as seen:
                call()
            found = [s for name, s in seen.operations if name == family]
            other = {name for name, _ in seen.operations}
            assert found, f"{family} of {sizes} ran {other}"
            if kind == "matmul" and 1 in sizes[1:4]:  # a vector looks the same either way
                assert found[0][:4] == sizes[:4]
            else:
                assert found[0] == sizes, f"{family} was drawn as {sizes} and runs as {found[0]}"


@pytest.mark.parametrize("kind", TRIALS)
def test_every_kind_has_a_family_and_a_backward_pass_where_it_needs_one(kind):
    made = calls_of(kind, sample_shape(kind, random.Random(0), SMALL), torch.device("cpu"), torch.float32)
    assert kind in made and set(made) <= set(FAMILIES)
