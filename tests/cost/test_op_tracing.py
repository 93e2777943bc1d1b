"""Tracing a network without running it: operations, their layers, memory, and networks that cannot be traced."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from paceline.built_in import BUILT_IN
from paceline.cost.operation import Operation
from paceline.cost.workload_tracing import DataShape, trace_workload
from paceline.measurement.mark_log import MarkLog
from paceline.measurement.module_marks import ModuleMarks
from paceline.measurement.shapes import ShapeRecorder
from paceline.networks import build
from paceline.workload import Workload, resolve
from tests.cost.invented import read

SHAPES = {
    "digits": DataShape("image", (1, 8, 8), 10, 1437),
    "cifar10": DataShape("image", (3, 32, 32), 10, 50_000),
    "text": DataShape("text", (64,), 96, 6_000, (64,)),
    "logic:5": DataShape(
        "tree", (63,), 2, 10_000, example=(torch.zeros(1, 63, dtype=torch.long), torch.zeros(1).long())
    ),
    "synthetic:3x224x224/1000": DataShape("image", (3, 224, 224), 1000, 1024),
}
SAMPLING = ("rbm",)
"""Networks whose forward pass runs Gibbs chains, which are not differentiated."""
PRODUCTS = ("matmul", "convolution", "convolution_backward", "convolution_backward_weight")


def products(operations: tuple[Operation, ...]) -> float:
    return sum(o.flops for o in operations if o.family in PRODUCTS)


@pytest.mark.parametrize(
    ("name", "precision"),
    [*((name, "float32") for name in BUILT_IN), *((name, "bfloat16") for name in ("mlp", "lenet5", "resnet20")),
     ("textlstm", "bfloat16"), ("transformer", "bfloat16")],
)  # fmt: skip
def test_every_built_in_network_is_traced_with_no_unknown_operation(name, precision):
    workload = resolve(name, {"batch": 4, "precision": precision})
    shape = trace_workload(workload, SHAPES[workload.data])
    assert not shape.unknown
    assert {o.direction for o in shape.operations} == {"forward", "backward"}
    least = 1.05 if name in SAMPLING else 1.9
    assert least < shape.flops / sum(o.flops for o in shape.operations if o.direction == "forward") < 4.1


@pytest.mark.parametrize("name", ["mlp", "lenet5", "transformer"])
def test_flops_equal_those_of_pytorchs_counter(name):
    data = SHAPES[resolve(name).data]
    shape = trace_workload(resolve(name, {"batch": 3}), data)
    network = build(name, shape=data.shape, classes=data.classes, kind=data.kind).train()
    x = torch.randint(data.classes, (3, *data.shape)) if data.kind == "text" else torch.randn(3, *data.shape)
    with FlopCounterMode(display=False) as counter:
        loss = network(x).sum()
        torch.autograd.grad(loss, list(network.parameters()))
    counted = counter.get_flop_counts()["Global"]
    ours = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm)
    ours += (torch.ops.aten.convolution, torch.ops.aten.convolution_backward)
    assert products(shape.operations) == sum(counted.get(each, 0) for each in ours) > 0


def test_saved_memory_equals_that_of_real_tensors():
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.1),
        nn.Linear(8 * 7 * 7, 10),
    )  # fmt: skip
    x = torch.randn(4, 3, 16, 16)
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(x).sum()
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}
    really = sum(storage.nbytes() for place, storage in storages.items() if place not in own)
    assert read(network, x).activation_bytes == pytest.approx(really, rel=0.02)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


def test_a_tied_weight_counts_once_for_its_first_layer():
    shape = read(Tied, torch.empty(2, 5, dtype=torch.int64))
    assert (shape.parameter_tensors, shape.parameter_bytes) == (1, 4 * 20 * 8)
    assert (shape.rows["embedding"].parameters, shape.rows["head"].parameters) == (160, 0)
    assert any(o.name == "add" and o.sizes == (160,) for o in shape.operations)  # its two gradients become one


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.frozen = nn.Linear(6, 6), nn.Linear(6, 6)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.frozen(self.layer(self.layer(x)))


def test_a_layer_called_twice_and_one_that_is_not_trained():
    shape = read(Twice, torch.empty(2, 6))
    assert shape.rows["layer"].calls == 2 and shape.rows["frozen"].parameters == 0
    assert shape.parameter_bytes == 4 * (36 + 6)
    forward = [o.row for o in shape.operations if o.family == "matmul" and o.direction == "forward"]
    backward = [o.row for o in shape.operations if o.family == "matmul" and o.direction == "backward"]
    assert forward == ["layer", "layer", "frozen"]
    assert sorted(backward) == ["frozen", "layer", "layer", "layer"]  # two weights' gradients, one input's


def test_dropout_counts_once_forward_and_once_backward():
    shape = read(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 2)), torch.empty(3, 6))
    own = [(o.direction, o.family) for o in shape.operations if o.row == "1"]
    assert own == [("forward", "dropout"), ("backward", "mul")]


def test_no_dropout_takes_no_time():
    shape = read(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.0)), torch.empty(3, 6))
    assert not [o for o in shape.operations if o.row == "1"]


class Branches(nn.Module):
    """In-place activations, a sum and work outside submodules, where module hooks would go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm, self.activation = nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(1))
        self.output = nn.Linear(4, 5)

    def forward(self, x):
        x = self.activation(self.norm(self.first(x)))
        x = (self.second(x) + x) * self.scale
        return self.output(x.mean((2, 3)))


def test_rows_are_those_of_a_measurement():
    network, x, log = Branches(), torch.randn(2, 3, 8, 8), MarkLog()
    marks, shapes = ModuleMarks(network, lambda: log), ShapeRecorder(network)
    with shapes.recording(), marks.installed():
        network(x).sum().backward()
    shape = read(Branches, x)
    for direction in ("forward", "backward"):
        measured = {row for _, (part, row), _, _ in log.marks if part == direction}
        mine = {o.row for o in shape.operations if o.direction == direction}
        assert mine <= measured and {"Branches", "first", "norm", "activation", "second", "output"} <= mine
    assert {name: layer.parameters for name, layer in shapes.layers.items()} == {
        name: row.parameters for name, row in shape.rows.items()
    }


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))

    def forward(self, x):
        return checkpoint(self.second, self.first(x), use_reentrant=False)


def test_activation_checkpointing_has_its_own_row():
    shape = read(Checkpointed, torch.empty(3, 6))
    again = [(o.row, o.family, o.direction) for o in shape.operations if o.row.endswith("(recomputed)")]
    assert again == [
        ("second.0 (recomputed)", "matmul", "backward"),
        ("second.1 (recomputed)", "tanh", "backward"),
    ]


READ_VGG16 = """
from pathlib import Path

from paceline.cost.workload_tracing import DataShape, trace_workload
from paceline.workload import resolve

def most_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

images = DataShape("image", (3, 224, 224), 1000, 1024)
trace_workload(resolve("vgg16", {"batch": 1}), DataShape("image", (3, 224, 224), 1000, 1024))
before = most_bytes()
shape = trace_workload(resolve("vgg16", {"batch": 256}), images)
print(shape.activation_bytes, shape.parameter_bytes, most_bytes() - before, most_bytes())
"""


@pytest.mark.slow
def test_vgg16_at_batch_256_is_traced_without_its_memory():
    run = subprocess.run([sys.executable, "-c", READ_VGG16], capture_output=True, text=True, check=True)
    activations, parameters, grown, most = map(int, run.stdout.split())
    assert activations > 15e9 and parameters > 5e8
    assert grown < 5e7 and most < 1.5e9


class NeedsValues(nn.Module):
    """Reads values while it is built and keeps a tensor that is not a buffer, as many networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
        self.mask = torch.ones(4)
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) * self.mask


def test_a_network_that_needs_values_while_it_is_built():
    shape = read(NeedsValues, torch.empty(3, 4))
    assert next(o.family for o in shape.operations if o.row == "layer") == "matmul"


def test_a_network_in_use_elsewhere_is_not_changed():
    network = Tied().eval()
    before = network.head.weight.detach().clone()
    first, second = (read(network, torch.empty(2, 5, dtype=torch.int64)) for _ in range(2))
    assert first == second and first.parameter_tensors == 1
    assert torch.equal(network.head.weight, before) and network.head.weight is network.embedding.weight
    assert not network.training and network(torch.zeros(1, 1, dtype=torch.int64)).abs().sum() > 0


class Unheard(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cumsum(self.layer(x), 0)


def test_an_operation_of_no_family_is_named_and_treated_as_a_pass_over_its_elements():
    shape = read(Unheard, torch.empty(3, 4))
    assert shape.unknown == ("cumsum",)
    (forward, *_) = [o for o in shape.operations if not o.known]
    assert (forward.family, forward.sizes, forward.row) == ("add", (12,), "Unheard")


@torch.library.custom_op("paceline_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


doubled.register_fake(torch.empty_like)
doubled.register_autograd(lambda context, gradient: 2 * gradient)


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return doubled(self.layer(x))


def test_a_custom_operation_is_named():
    assert read(Custom, torch.empty(3, 4)).unknown == ("doubled",)


@pytest.mark.parametrize("loss", ["cross-entropy", "binary-cross-entropy", "squared", "hinge"])
def test_every_loss_is_traced(loss):
    shape = trace_workload(Workload("mlp", loss=loss, batch=4), SHAPES["digits"])
    assert not shape.unknown
    assert any(o.row == "(outside any module)" and o.direction == "backward" for o in shape.operations)


def test_a_larger_batch_has_the_same_operations_with_more_work_and_memory():
    small, large = (trace_workload(resolve("lenet5", {"batch": b}), SHAPES["digits"]) for b in (8, 16))
    assert [o.name for o in small.operations] == [o.name for o in large.operations]
    assert products(large.operations) == 2 * products(small.operations)
    assert large.activation_bytes > 1.9 * small.activation_bytes and large.parameter_bytes == small.parameter_bytes


class Images(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).mean((2, 3))  # type: ignore[no-any-return]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("layout", "mean"), [("channels-last", (4, 36, 8)), ("contiguous", (32, 36, 1))])
def test_operations_know_the_layout_of_images(channels, layout, mean):
    """Images with a single channel look the same in both layouts; those made from them do not."""
    workload = Workload(f"tests.cost.test_op_tracing:images_{channels}", batch=4, memory_format=layout)
    found = trace_workload(workload, DataShape("image", (channels, 8, 8), 8, 100)).operations
    forward = next(o for o in found if o.family == "convolution")
    assert forward.channels_last == (layout == "channels-last")
    assert next(o for o in found if o.family == "reduce" and o.direction == "forward").sizes == mean


def images_1() -> nn.Module:
    return Images(1)


def images_3() -> nn.Module:
    return Images(3)
