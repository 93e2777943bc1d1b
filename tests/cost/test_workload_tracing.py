"""Tracing a workload: the shape of data without loading it, custom networks, and what is rejected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline import data
from paceline.cost.workload_tracing import DataShape, chain_operations, data_shape_of, is_chain, trace_workload
from paceline.data.cache import cache_folder
from paceline.errors import DataError, NetworkError, WorkloadError
from paceline.workload import Workload, resolve
from tests.cost.invented import read

DIGITS = DataShape("image", (1, 8, 8), 10, 1437)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("digits", DIGITS),
        ("digits:100", DataShape("image", (1, 8, 8), 10, 100)),
        ("mnist", DataShape("image", (1, 28, 28), 10, 60_000)),
        ("cifar10:500", DataShape("image", (3, 32, 32), 10, 500)),
        ("synthetic:3x224x224/1000", DataShape("image", (3, 224, 224), 1000, 1024)),
        ("synthetic:20/3:1281167", DataShape("table", (20,), 3, 1_281_167)),
    ],
)
def test_the_shape_of_data_without_the_data(source, expected):
    assert data_shape_of(Workload(data=source)) == expected
    assert not list(cache_folder().rglob("*")), "nothing was fetched"


def test_a_shape_without_data_is_the_shape_with_data():
    loaded = DataShape.of(data.load("synthetic:3x4x5/7:40"))
    assert data_shape_of(Workload(data="synthetic:3x4x5/7:40")) == loaded
    text = data_shape_of(Workload(data="text"))
    assert (text.kind, text.shape, text.target_shape) == ("text", (64,), (64,)) and text.classes > 20


@pytest.mark.parametrize("source", ["synthetic:0x3", "synthetic:3x3?size=2", "nothing", "synthetic"])
def test_missing_data(source):
    with pytest.raises(DataError):
        data_shape_of(Workload(data=source))


OWN = """
import torch
from torch import nn

import paceline

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.LeakyReLU(), nn.Linear(12, 10))

def something_else():
    return 3

class Deciding(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)
    def forward(self, x):
        y = self.layer(x.flatten(1))
        return y if y.sum() > 0 else -y

class Choosing(Deciding):
    def forward(self, x):
        return self.layer(x.flatten(1)[x.flatten(1)[:, 0] > 0])

class Mistaken(Deciding):
    def forward(self, x):
        return self.layer(x)

class Sampled:
    name, rule = "sampled", paceline.Rule("momentum", 0.1)
    def __init__(self, network):
        self.network, self.parameters = network, list(network[1].parameters())
    @torch.no_grad()
    def gradient(self, batch, generator):
        x = batch[0].flatten(1)
        drawn = torch.bernoulli(self.network[1](x).sigmoid(), generator=generator)
        return paceline.Outcome(drawn.mean(), [drawn.t() @ x, drawn.mean(0)])

def phases(network, workload):
    second = paceline.LossPhase(network, workload)
    second.parameters = list(network[3].parameters())
    return [Sampled(network), second]

class Undecided(Sampled):
    def gradient(self, batch, generator):
        return super().gradient(batch, generator) if batch[0].sum() > 0 else None

def deciding(network, workload):
    return [Undecided(network)]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_networks_of_a_test.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


def own_workload(function: str) -> Workload:
    return Workload(f"own_networks_of_a_test:{function}", batch=6)


def test_a_custom_network(own):
    shape = trace_workload(own_workload("build"), DIGITS)
    assert shape.parameter_bytes == 4 * (64 * 12 + 12 + 12 * 10 + 10) and not shape.unknown
    assert shape.operations[0].row == "1" and shape.operations[0].sizes[:4] == (1, 6, 12, 64)


def test_a_function_that_returns_no_network(own):
    with pytest.raises(WorkloadError, match="returned an int, not an nn"):
        trace_workload(own_workload("something_else"), DIGITS)


@pytest.mark.parametrize("function", ["Deciding", "Choosing"])
def test_a_network_with_data_dependent_control_flow_is_rejected(own, function):
    with pytest.raises(NetworkError, match=r"depends on the values of its data \(aten.*; measure it instead"):
        trace_workload(own_workload(function), DIGITS)


def test_a_network_that_does_not_fit_its_data(own, capfd):
    with pytest.raises(NetworkError, match="cannot be traced: "):
        trace_workload(own_workload("Mistaken"), DIGITS)
    assert "Traceback" not in capfd.readouterr().err


def test_custom_phases_are_traced_as_they_are(own):
    """Two halves of a network, each with its own rule; the first draws random numbers and has no backward pass."""
    whole = trace_workload(own_workload("build"), DIGITS)
    halves = trace_workload(replace(own_workload("build"), phases="own_networks_of_a_test:phases"), DIGITS)
    assert [phase.rule.optimizer for phase in halves.phases] == ["momentum", "sgd"]
    assert halves.parameter_shapes == ((12, 64), (12,), (10, 12), (10,))
    assert halves.parameter_bytes == whole.parameter_bytes
    drawn = [o.name for o in halves.operations if "bernoulli" in o.name]
    assert drawn and {o.direction for o in halves.operations} == {"forward", "backward"}
    assert halves.activation_bytes == whole.activation_bytes, "of the second phase: it runs the whole network"


def test_a_phase_that_cannot_be_traced_is_named(own):
    with pytest.raises(NetworkError, match=r"own_networks_of_a_test:deciding cannot be traced: .*measure it instead"):
        trace_workload(replace(own_workload("build"), phases="own_networks_of_a_test:deciding"), DIGITS)


CHAIN = (nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 4))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (CHAIN, True),
        ((nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4)), True),
        ((*CHAIN, nn.ReLU()), False),
        ((nn.Flatten(), nn.Linear(64, 8, bias=False), nn.Linear(8, 4)), False),
        ((nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Tanh(), nn.Linear(8, 4)), False),
        ((nn.Flatten(), nn.Linear(64, 8), nn.GELU(), nn.Linear(8, 4)), False),
        ((nn.Flatten(), nn.Sequential(nn.Linear(64, 8), nn.ReLU()), nn.Linear(8, 4)), False),
    ],
)
def test_which_networks_have_a_hand_written_gradient(layers, expected):
    assert is_chain(read(nn.Sequential(*layers), torch.empty(3, 64))) is expected


def test_a_chain_needs_cross_entropy_and_no_autocast():
    shape = read(nn.Sequential(*CHAIN), torch.empty(3, 64))
    assert is_chain(shape, Workload())
    assert not is_chain(shape, Workload(loss="squared")) and not is_chain(shape, Workload(precision="bfloat16"))
    assert not is_chain(trace_workload(resolve("lenet5", {"batch": 2}), DIGITS))


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_chain_computes_no_loss(on_gpu):
    shape = trace_workload(resolve("mlp", {"batch": 5}), DIGITS)
    written = chain_operations(shape.operations, on_gpu)
    assert not {"nll_loss_forward", "nll_loss_backward"} & {o.name for o in written}
    products = [o for o in written if o.family == "matmul"]
    assert any(o.sizes[-1] for o in products) is not on_gpu
    assert sum(o.flops for o in products) >= sum(o.flops for o in shape.operations if o.family == "matmul")
