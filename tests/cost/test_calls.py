"""How often Python calls the layers of a network, and autograd its nodes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.cost.caches import Costed
from paceline.cost.calls import calls_of, displaced_between_calls
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.operation import Operation
from paceline.measurement.mark_log import OUTSIDE
from tests.cost.invented import read

MB = 1 << 20


class Twice(nn.Module):
    """Its layer is called twice; two operations are its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(torch.relu(self.layer(x))))


def costed(shape: NetworkShape) -> list[Costed]:
    return [Costed(operation, 1e-6, 0.1) for operation in shape.operations]


def test_modules_are_counted_and_not_their_operations():
    shape = read(Twice, torch.empty(3, 4))
    found = calls_of(shape, costed(shape))
    assert next(iter(found)) == ("Twice", "forward")
    assert found["Twice", "forward"] == 1 and found["layer", "forward"] == 2
    assert found["Twice", "backward"] == 2  # of tanh and relu
    assert not any(row == OUTSIDE for row, _ in found)


def test_what_is_recomputed_counts_by_its_operations():
    shape = read(Twice, torch.empty(3, 4))
    again = Operation("relu", (12,), "Twice (recomputed)", "backward", "relu")
    found = calls_of(shape, [*costed(shape), Costed(again, 1e-6, 0.1), Costed(again, 1e-6, 0.1)])
    assert found["Twice (recomputed)", "backward"] == 2


def test_the_more_is_written_between_calls_the_more_of_their_code_is_lost():
    def written(each: int) -> list[Costed]:
        return [Costed(Operation("relu", (1,), "a", "forward", "relu", written_bytes=each), 1e-6, 0.1)] * 4

    calls = {("a", "forward"): 3, ("a", "backward"): 1}
    assert displaced_between_calls(calls, written(MB), MB) == 0.5
    assert displaced_between_calls(calls, written(3 * MB), MB) == 0.75
