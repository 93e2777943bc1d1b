"""Predicting builds no network in memory; only a large one that needs the values of its weights is refused."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.cost.workload_tracing import DataShape, trace_workload
from paceline.errors import NetworkError, WorkloadError
from paceline.unallocated import build_unallocated, small_tensors_real
from paceline.workload import Workload, resolve

HERE = "tests.cost.large_networks"
DIGITS = DataShape("image", (1, 8, 8), 10, 1437)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """At most 4 GB more than the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_network_of_fifty_gigabytes_is_read_by_name(little_memory):
    workload = resolve(f"{HERE}:fifty_gigabytes", {"batch": 4})
    assert trace_workload(workload, DIGITS, on_gpu=True).parameter_bytes > 48e9


def test_it_cannot_be_built_within_that_memory(little_memory):
    """So that the test above can fail."""
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        nn.Linear(110_000, 110_000)


def test_a_network_on_the_meta_device_is_read():
    with torch.device("meta"):
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    import paceline

    found = paceline.predict(network, data="digits", device="H200", batch=8)
    assert found.parameter_bytes == 4 * 650 and network[1].weight.is_meta


class Constructor(nn.Module):
    """What constructors do beside making weights."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = torch.linspace(0, 0.5, 3).tolist()
        self.first, self.second = nn.Linear(64, 20_000), nn.Linear(20_000, 10)
        self.register_buffer("mask", torch.zeros(10, device="cpu").to("cpu"))
        if torch.tensor([1, 2]).sum().item() == 3:
            self.flat = nn.Flatten()
        nn.init.trunc_normal_(self.first.weight, std=0.02)
        nn.init.orthogonal_(self.second.weight)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_().mul_(0.1)
            self.second.bias.copy_(torch.arange(10.0))

    def forward(self, x):
        return self.second(self.first(self.flat(x))) + self.mask


def test_constructors_that_compute_with_small_tensors_are_read():
    found = trace_workload(Workload(f"{__name__}:Constructor", batch=4), DIGITS)
    assert found.parameter_bytes == 4 * (64 * 20_000 + 20_000 + 20_000 * 10 + 10)


def test_small_tensors_have_values_and_large_ones_do_not():
    with small_tensors_real():
        small, large = torch.ones(4), torch.ones(1 << 20)
        assert small.sum().item() == 4 and (small * 2).tolist() == [2, 2, 2, 2]
        with pytest.raises(Exception, match="_local_scalar_dense"):
            large.sum().item()


def test_a_small_network_that_needs_its_own_values_is_built():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(300, 300)
            self.scale = 1 / self.layer.weight.norm().item()

    assert build_unallocated(Scaled, "Scaled").scale > 0


def test_a_large_one_is_refused_in_one_line():
    with pytest.raises(NetworkError, match="needs the values of its own weights while it is built") as refused:
        resolve(f"{HERE}:ComputesWithItsWeights")
    assert "\n" not in str(refused.value)


def test_a_mistake_in_a_constructor_is_reported_as_it_is():
    with pytest.raises(WorkloadError, match="failed: ZeroDivisionError"):
        resolve(f"{__name__}:mistaken")


def mistaken() -> nn.Module:
    return nn.Linear(1 // 0, 2)


READ = """
import sys
from pathlib import Path
from time import process_time

import paceline

start = process_time()
settings = dict(data="tokens:512/32000", batch=4, optimizer="adamw", lr=1e-4)
if sys.argv[1] == "plan":
    paceline.plan(sys.argv[2], **settings)
elif sys.argv[1] == "simulate":
    paceline.simulate(sys.argv[2], "sync", workers=2, cluster="p5.48xlarge", **settings)
else:
    made = paceline.predict(sys.argv[2], device="H200", precision="bfloat16", **settings)
    assert 25e9 < made.parameter_bytes < 30e9, made.parameter_bytes
lines = Path("/proc/self/status").read_text().splitlines()
print(1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")), process_time() - start)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "network"), [("predict", "hugging_face"), ("plan", "PlainDecoder")])
def test_seven_billion_parameters_in_two_gigabytes_and_a_minute(verb, network):
    run = subprocess.run(
        [sys.executable, "-c", READ, verb, f"{HERE}:{network}"], capture_output=True, text=True, check=True
    )
    most_bytes, seconds = map(float, run.stdout.split())
    assert most_bytes < 2e9 and seconds < 60
