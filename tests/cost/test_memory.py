"""The memory of a training step, from shapes: monotone, and about what a process really takes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import bundled_calibrations
from paceline.cost.curve import Trial
from paceline.cost.families import CONVOLUTIONS, FAMILIES
from paceline.cost.memory import OPTIMIZER_TENSORS, memory_bytes
from paceline.cost.predicting import predict
from paceline.cost.workload_tracing import DataShape, data_shape_of, trace_workload
from paceline.cost.workspaces import measured_workspaces
from paceline.workload import OPTIMIZERS, Workload, resolve

IMAGES = DataShape("image", (3, 64, 64), 10, 512)


def needed(settings: dict[str, object], *, step: str = "flat", on_gpu: bool = True, network: str = "resnet18") -> int:
    workload = resolve(network, {"data": "synthetic:3x64x64/10:512", **settings})
    shape = trace_workload(workload, IMAGES, on_gpu=on_gpu)
    return memory_bytes(shape, workload, IMAGES, step=step, on_gpu=on_gpu)


@pytest.mark.parametrize("step", ["plain", "flat", "graph"])
def test_a_larger_batch_needs_more(step):
    found = [needed({"batch": batch}, step=step) for batch in (2, 16, 128)]
    assert found == sorted(found) and len(set(found)) == 3


def test_optimizer_state_needs_memory():
    assert set(OPTIMIZER_TENSORS) == set(OPTIMIZERS)
    workload = resolve("resnet18", {"batch": 2, "data": "synthetic:3x64x64/10:512"})
    parameters = trace_workload(workload, IMAGES).parameter_bytes
    sgd, momentum, adam = (needed({"batch": 2, "optimizer": name}) for name in ("sgd", "momentum", "adam"))
    assert momentum - sgd == pytest.approx(parameters, rel=0.5)
    assert adam - momentum > parameters, "adam also needs room for its intermediate results"


def test_captured_graphs_share_the_memory_of_their_activations():
    eager, captured = (needed({"batch": 128}, step=step) for step in ("flat", "graph"))
    assert 1.0 < captured / eager < 1.6, "two graphs with memory of their own would need twice as much"


def test_half_precision_saves_activation_memory():
    assert needed({"batch": 256, "precision": "bfloat16"}) < 0.8 * needed({"batch": 256})


def test_a_smaller_last_batch_is_computed_outside_the_graph():
    workload = resolve("resnet18", {"batch": 128, "data": "synthetic:3x64x64/10:512"})
    shape = trace_workload(workload, IMAGES, on_gpu=True)
    whole, rest = (
        memory_bytes(shape, workload, DataShape("image", (3, 64, 64), 10, samples), step="graph", on_gpu=True)
        for samples in (512, 512 + 100)
    )
    assert rest > 1.1 * whole


MEASURED = """
from pathlib import Path

from paceline.step.build import assemble, load_data
from paceline.step.make import make_step
from paceline.step.placement import choose_device
from paceline.step.tally import Tally
from paceline.workload import Workload

workload = Workload("lenet5", "synthetic:1x28x28/10:2048", batch=1024, device="cpu", threads=1)
step, _ = make_step(assemble(workload, load_data(workload, None), choose_device("cpu")[0]), "flat")
step.begin(0)
step.advance(2, Tally(5))
# What getrusage tells begins with the memory of whoever started this.
lines = Path("/proc/self/status").read_text().splitlines()
print(1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")))
"""


def test_the_estimate_is_close_to_a_real_process():
    workload = Workload("lenet5", "synthetic:1x28x28/10:2048", batch=1024)
    data = data_shape_of(workload)
    predicted = memory_bytes(trace_workload(workload, data), workload, data, step="flat", on_gpu=False)
    run = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    assert 0.5 < predicted / int(run.stdout) < 2.0


def test_data_that_are_too_large_for_the_device_stay_on_the_host():
    workload = Workload("resnet18", batch=32)
    device_bytes, sizes = 8 << 30, []
    for samples in (32, 20_000, 10_000_000):
        data = DataShape("image", (3, 64, 64), 10, samples)
        shape = trace_workload(workload, data, on_gpu=True)
        sizes.append(memory_bytes(shape, workload, data, step="flat", on_gpu=True, device_bytes=device_bytes))
    small, middle, large = sizes
    assert middle - small == pytest.approx(20_000 * 3 * 64 * 64 * 4, rel=0.1) and large == pytest.approx(
        small, rel=0.05
    )


def with_workspaces(first: float, later: float) -> Calibration:
    """The H200, where a convolution needs this many bytes per element of its tensors besides."""

    def of(trial: Trial) -> Trial:
        if trial.family not in CONVOLUTIONS:
            return trial
        moved = FAMILIES[trial.family].work_of(trial.sizes)[1]
        return replace(trial, workspace_bytes=int(later * moved), first_workspace_bytes=int(first * moved))

    h200 = bundled_calibrations()["H200"]
    sets = tuple(replace(each, trials=tuple(map(of, each.trials))) for each in h200.sets)
    return replace(h200, sets=sets)


@pytest.mark.parametrize("step", ["plain", "graph"])
def test_workspaces_of_convolutions_are_reserved(step):
    none, some, tried = with_workspaces(0.0, 0.0), with_workspaces(8.0, 8.0), with_workspaces(60.0, 8.0)

    def reserved(network: str, found: Calibration) -> int:
        workload = resolve(network, {"batch": 64, "data": "digits"})
        return predict(workload, found, data=IMAGES, step=step).memory_bytes

    assert 1.02 * reserved("resnet18", none) < reserved("resnet18", some) < 0.98 * reserved("resnet18", tried)
    assert reserved("mlp", none) == reserved("mlp", tried)


def test_the_workspace_of_a_call_is_its_peak_beyond_its_result(monkeypatch):
    in_use, peaks = iter((100, 130, 130, 160)), iter((1130, 170))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: next(in_use))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: next(peaks))
    assert measured_workspaces(lambda: None, torch.device("cuda")) == (1000, 10)
