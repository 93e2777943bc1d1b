"""Traces for a GPU: types as autocast gives them, one kernel for attention and dropout, without a GPU."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from paceline.built_in import BUILT_IN
from paceline.cost import gpu_dispatch
from paceline.cost.gpu_dispatch import as_on_gpu
from paceline.cost.op_tracing import NetworkShape, trace_network
from paceline.cost.operation import Operation
from paceline.cost.workload_tracing import DataShape, trace_workload
from paceline.workload import resolve
from tests.cost.invented import OwnPhase
from tests.cost.test_op_tracing import SHAPES


def trace(network: type[nn.Module], dtype: torch.dtype | None = None, **settings) -> NetworkShape:
    """Of a network with tokens of 4 x 16 as its input, under autocast to `dtype`."""

    def loss_of(made, batch):
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            output = made(batch[0])
            return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())

    def tokens():
        return torch.empty(4, 16, dtype=torch.int64), torch.empty(4, 16, dtype=torch.int64)

    return trace_network(network, tokens, lambda made: [OwnPhase(made, loss_of)], on_gpu=True, **settings)


class Decoder(nn.Module):
    """One weight used twice, attention, dropout and norms."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.rms = nn.Embedding(50, 32), nn.LayerNorm(32), nn.RMSNorm(32)
        self.qkv, self.shared, self.head = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 50)
        self.drop = nn.Dropout(0.1)

    def forward(self, tokens):
        x = self.embedding(tokens)
        q, k, v = self.qkv(self.norm(x)).view(4, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.shared(self.shared(y)))
        return self.head(self.rms(x))


def named(shape: NetworkShape, *names: str) -> list[Operation]:
    return [operation for operation in shape.operations if operation.name in names]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_each_weight_once_and_products_are_in_half_precision(dtype):
    shape, half = trace(Decoder, dtype), str(dtype).removeprefix("torch.")
    weights = Counter(o.sizes[0] for o in named(shape, "_to_copy") if o.direction == "forward" and o.out_dtype == half)
    assert weights[32 * 96] == weights[32 * 50] == 1
    assert weights[32 * 32] == 1, "the weight of a layer that is called twice is cast once"
    products = [o for o in shape.operations if o.family == "matmul"]
    assert products and {(o.dtype, o.out_dtype) for o in products} == {(half, half)}


def test_norms_and_the_loss_are_in_float32_under_autocast():
    shape = trace(Decoder, torch.bfloat16)
    names = ("native_layer_norm", "_fused_rms_norm", "_log_softmax", "nll_loss_forward")
    assert {(o.name, o.dtype) for o in named(shape, *names)} == {(name, "float32") for name in names}
    (logits,) = [o for o in named(shape, "_to_copy") if o.dtype == "bfloat16" and o.direction == "forward"][-1:]
    assert (logits.sizes, logits.read_bytes, logits.written_bytes) == ((3200,), 6400, 12800)


@pytest.mark.parametrize(
    ("dtype", "kernel"),
    [(torch.bfloat16, "_scaled_dot_product_flash_attention"), (None, "_scaled_dot_product_efficient_attention")],
)
def test_attention_is_the_kernel_of_a_gpu(dtype, kernel):
    found = [(o.name, o.family, o.sizes) for o in trace(Decoder, dtype).operations if "attention" in o.family]
    assert found == [
        (kernel, "attention", (8, 16, 16, 16, 1)),
        (f"{kernel}_backward", "attention_backward", (8, 16, 16, 16, 1)),
    ]


class Masked(Decoder):
    def forward(self, tokens):
        q, k, v = self.qkv(self.embedding(tokens)).view(4, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
        mask = torch.ones(16, 16, dtype=torch.bool)
        return self.head(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


def test_attention_with_a_mask_is_memory_efficient():
    (found,) = [o.name for o in trace(Masked, torch.bfloat16).operations if o.family == "attention"]
    assert found == "_scaled_dot_product_efficient_attention"


def test_dropout_is_one_operation_with_a_mask_of_bytes():
    (forward,) = named(trace(Decoder), "native_dropout")
    assert (forward.read_bytes, forward.written_bytes) == (4 * 2048, 5 * 2048)


class Normed(nn.Module):
    """An RMS norm of what a linear layer wrote in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.linear, self.rms = nn.Embedding(50, 32), nn.Linear(32, 32), nn.RMSNorm(32)

    def forward(self, tokens):
        return self.rms(self.linear(self.embedding(tokens)))


@pytest.mark.parametrize("cast", [True, False])
def test_an_rms_norm_is_one_kernel_where_autocast_casts_its_input(monkeypatch, cast):
    known = gpu_dispatch._is_cast_on_gpu
    monkeypatch.setattr(gpu_dispatch, "_is_cast_on_gpu", lambda name: cast if name == "rms_norm" else known(name))
    found = [o.name for o in trace(Normed, torch.bfloat16).operations if o.row == "rms" and o.direction == "forward"]
    written_out = ["_to_copy", "pow", "mean", "add", "rsqrt", "mul", "_to_copy", "mul"]
    assert found == (["_to_copy", "_fused_rms_norm"] if cast else written_out)


class GroupNormed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 8, 3, padding=1))


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_a_group_norm_converts_the_layout_of_images_and_the_next_convolution_converts_it_back(layout):
    def loss_of(made, batch):
        return made(batch[0]).square().mean()

    def images():
        return torch.empty(2, 8, 12, 12), torch.empty(2)

    shape = trace_network(
        GroupNormed, images, lambda made: [OwnPhase(made, loss_of)], on_gpu=True, layout=lambda _: layout
    )
    copies = Counter((o.row, o.direction, o.sizes[0]) for o in shape.operations if o.family == "copy")
    image = 2 * 16 * 12 * 12
    expected = [("1", "forward", image), ("3", "forward", image), ("3", "backward", image), ("0", "backward", image)]
    last = layout == torch.channels_last
    assert [copies[place] for place in expected] == [int(last) for _ in expected]
    assert {o.channels_last for o in shape.operations if o.family.startswith("convolution")} == {last}


def test_convolutions_have_the_gradients_of_pytorch():
    torch.manual_seed(0)
    network, x = GroupNormed().double().to(memory_format=torch.channels_last), torch.randn(2, 8, 5, 5).double()
    x.requires_grad_(True)
    usual = torch.autograd.grad(network(x).square().sum(), [x, *network.parameters()])
    with as_on_gpu():
        found = torch.autograd.grad(network(x).square().sum(), [x, *network.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(usual, found, strict=True))


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_network_is_traced_in_bfloat16(name):
    workload = resolve(name, {"batch": 2, "precision": "bfloat16"})
    shape = trace_workload(workload, SHAPES[workload.data], on_gpu=True)
    assert not shape.unknown
    products = [o for o in shape.operations if o.family in ("matmul", "convolution", "convolution_backward")]
    assert products and {o.dtype for o in products} == {"bfloat16"}


def test_channels_last_is_seen_by_convolutions():
    images = DataShape("image", (3, 16, 16), 10, 100)
    workload = resolve("resnet20", {"batch": 2, "memory_format": "channels-last"})
    shape = trace_workload(workload, images, on_gpu=True)
    convolutions = [o for o in shape.operations if o.family.startswith("convolution")]
    assert all(o.channels_last for o in convolutions)
    plain = trace_workload(resolve("resnet20", {"batch": 2}), images, on_gpu=True)
    assert not any(o.channels_last for o in plain.operations)


def test_real_tensors_compute_what_they_did_before():
    x = torch.randn(2, 4, 8, 16)
    with torch.autocast("cpu", torch.bfloat16):
        expected = F.layer_norm(x.bfloat16(), (16,)), F.scaled_dot_product_attention(x, x, x)
        with as_on_gpu():
            inside = F.layer_norm(x.bfloat16(), (16,)), F.scaled_dot_product_attention(x, x, x)
        after = F.layer_norm(x.bfloat16(), (16,)), F.scaled_dot_product_attention(x, x, x)
    for found in (inside, after):
        assert [t.dtype for t in found] == [t.dtype for t in expected]
        assert all(torch.allclose(a, b, atol=2e-2) for a, b in zip(found, expected, strict=True))
