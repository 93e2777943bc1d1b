"""Number formats: tf32 only if asked for, and a weight is cast once per step, whatever reads it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.errors import WorkloadError
from paceline.step.make import make_step
from paceline.step.placement import set_number_formats
from paceline.step.tally import Tally
from paceline.workload import PRECISIONS, Workload
from tests.step.small_parts import parts_for, rows


class Twice(nn.Module):
    """Uses one weight twice in a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.output = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.output(torch.tanh(self.layer(torch.tanh(self.layer(x)))))
        return y


class Casts(TorchDispatchMode):
    """Counts casts of the numbers of one tensor to half precision."""

    def __init__(self, of: Tensor) -> None:
        super().__init__()
        self.place, self.shape, self.count = of.data_ptr(), of.shape, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        cast = func is torch.ops.aten._to_copy.default and found.dtype in (torch.bfloat16, torch.float16)
        self.count += cast and args[0].data_ptr() == self.place and args[0].shape == self.shape
        return found


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["plain", "flat"])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_weight_is_cast_once_per_step(precision, kind, accumulate):
    network = Twice()
    parts = parts_for(network, rows(), precision=precision, accumulate=accumulate)
    step, _ = make_step(parts, kind)
    step.begin(0)
    with Casts(network.layer.weight) as casts:
        step.advance(1, Tally(1))
    assert casts.count == 1
    with casts:
        step.advance(2, Tally(1))
    assert casts.count == 3, "the next step has another weight"


@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_micro_batches_that_share_casts_have_the_gradient_of_single_ones(kind):
    def after(accumulate: int) -> Tensor:
        torch.manual_seed(0)
        network = Twice()
        step, _ = make_step(parts_for(network, rows(), precision="bfloat16", accumulate=accumulate), kind)
        step.begin(0)
        step.advance(4, Tally(1))
        return torch.cat([p.detach().flatten() for p in network.parameters()])

    torch.testing.assert_close(after(4), after(1), rtol=0.0, atol=5e-3)


@pytest.fixture
def flags():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
    ) = before


@pytest.mark.parametrize("precision", PRECISIONS)
def test_tf32_is_used_only_if_asked_for(precision, flags):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "tf32"
    set_number_formats(Workload("mlp", precision=precision), torch.device("cuda"))
    assert torch.backends.cuda.matmul.allow_tf32 is (precision == "tf32")
    assert torch.backends.cudnn.allow_tf32 is (precision == "tf32")


def test_a_cpu_has_no_tf32():
    with pytest.raises(WorkloadError, match="precision 'tf32' needs a GPU; use float32 on the CPU"):
        set_number_formats(Workload("mlp", precision="tf32"), torch.device("cpu"))
