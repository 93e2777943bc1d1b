"""Layers that are divided by feature and sharded parameters: shares, traffic and time, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.cost.exchange_tracing import LayerExchange, trace_exchanges
from paceline.cost.workload_tracing import data_shape_of
from paceline.errors import InputError
from paceline.workload import resolve

DATA = {"data": "synthetic:3x64x64/10:1000", "batch": 64}
MLP = {"data": "digits", "batch": 32, "options.hidden": [64, 96, 48]}


def divided(network: Any = "vgg11", **more: Any) -> Any:
    return paceline.predict_divided(network, "H200", **(DATA | {"link": "NVLink 4"} | more))


def test_what_is_exchanged_is_what_pairs_and_single_layers_need() -> None:
    workload = resolve("mlp", MLP)
    found = {one.layer: one for one in trace_exchanges(workload, data_shape_of(workload), 2)}
    assert found["fc1"] == LayerExchange("fc1")  # data have no gradient
    assert found["fc2"] == LayerExchange("fc2", summed_bytes=32 * 96 * 4)
    assert found["fc3"] == LayerExchange("fc3", gradient_bytes=32 * 96 * 4)
    assert found["output"] == LayerExchange("output", summed_bytes=32 * 10 * 4)
    three = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    made = divided(three, data="digits", batch=32, tensor=2)
    last = next(layer for layer in made.layers if layer.name == "5")
    # gathered: 1/2 of the output; its gradient in the backward pass: 2 × 1/2 of the input
    assert last.sent_bytes == 32 * 4 * (10 // 2 + 32)
    assert three[1].out_features == 64  # the network itself is as it was


def test_each_process_has_its_share_of_the_divided_layers() -> None:
    whole = paceline.predict("mlp", "H200", step="plain", **MLP)
    made = divided("mlp", **MLP, tensor=2)
    biases = (96 + 10) * 4  # of second layers, which every process has
    assert made.parameter_bytes == (whole.parameter_bytes - biases) // 2 + biases
    assert made.layers[0].name == whole.layers[0].name and made.processes == 2
    assert made.sent_bytes == sum(layer.sent_bytes for layer in made.layers) > 0


def test_large_layers_take_less_time_and_memory_when_divided() -> None:
    settings = {"data": "synthetic:4096/10:1000", "batch": 4096, "options.hidden": [8192] * 4}
    whole = paceline.predict("mlp", "H200", step="plain", **settings)
    two, four = (divided("mlp", **settings, tensor=tensor) for tensor in (2, 4))
    assert four.compute_s < two.compute_s < whole.parts_s["forward"] + whole.parts_s["backward"]
    assert four.memory_bytes < two.memory_bytes < whole.memory_bytes
    assert four.step_s < two.step_s < whole.iteration_s
    assert two.low_s < two.step_s < two.high_s


def test_a_slower_link_and_copies_take_longer() -> None:
    for how in ({"tensor": 2}, {"shard": "fsdp", "workers": 2}):
        fast, slow = divided(**how), divided(**how, link="10 Gb/s Ethernet")
        assert fast.step_s < slow.step_s and fast.compute_s == slow.compute_s
        assert fast.exchange_s < slow.exchange_s
    copies = divided(tensor=2, workers=2)
    assert copies.step_s > divided(tensor=2).step_s and copies.replicas == 2 and copies.processes == 4
    assert copies.sent_bytes == divided(tensor=2).sent_bytes + copies.parameter_bytes


def test_shards_divide_parameters_and_send_them_three_times() -> None:
    whole = paceline.predict("vgg11", "H200", step="plain", **DATA)
    found = {workers: divided(shard="fsdp", workers=workers) for workers in (2, 4, 8)}
    for workers, made in found.items():
        assert made.parameter_bytes == pytest.approx(whole.parameter_bytes / workers, rel=1e-5)
        assert made.sent_bytes == pytest.approx(3 * whole.parameter_bytes * (workers - 1) / workers, rel=1e-5)
        assert made.compute_s == pytest.approx(whole.parts_s["forward"] + whole.parts_s["backward"], rel=0.02)
        assert made.epoch_s == pytest.approx(-(-1000 // (64 * workers)) * made.step_s)
    assert found[8].memory_bytes < found[4].memory_bytes < found[2].memory_bytes < whole.memory_bytes


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x.flatten(1)) + self.other(x.flatten(1))  # type: ignore[no-any-return]


def test_on_a_gpu_gathers_are_hidden_behind_computing() -> None:
    equal = {"data": "synthetic:2048/10:10000", "batch": 8192, "options.hidden": [2048] * 6}
    made = divided("mlp", **equal, shard="fsdp", workers=2)
    assert made.exchange_s < 0.5 * sum(layer.exchange_s for layer in made.layers)


def test_a_network_that_is_no_chain_is_gathered_as_a_whole() -> None:
    made = divided(Branches(), data="digits", shard="fsdp", workers=2)
    assert len(made.layers) == 1
    assert made.parameter_bytes == 2 * (64 * 10 + 10) * 4 // 2


def test_what_cannot_be_predicted_is_said() -> None:
    with pytest.raises(InputError, match="has no linear layer whose features can be divided by `tensor=7`"):
        divided("mlp", data="digits", tensor=7)
    with pytest.raises(InputError, match="divides a network among `workers=2` or more"):
        divided(shard="fsdp")
    for both in ({}, {"tensor": 2, "shard": "fsdp", "workers": 2}):
        with pytest.raises(InputError, match="one of them is predicted at a time"):
            divided(**both)
