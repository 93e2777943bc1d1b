"""The memory of a training step, from shapes: monotone, and about what a process really takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.cost.memory import OPTIMIZER_TENSORS, memory_bytes
from paceline.cost.workload_tracing import DataShape, data_shape_of, trace_workload
from paceline.workload import OPTIMIZERS, Workload, resolve

DIGITS = DataShape("image", (1, 8, 8), 10, 1437)


def needed(settings: dict[str, object], *, on_gpu: bool = True) -> int:
    workload = resolve("lenet5", settings)
    return memory_bytes(trace_workload(workload, DIGITS), workload, on_gpu)


def test_a_larger_batch_needs_more():
    found = [needed({"batch": batch}) for batch in (1, 8, 64, 512)]
    assert found == sorted(found) and len(set(found)) == 4


def test_optimizer_state_needs_memory():
    assert set(OPTIMIZER_TENSORS) == set(OPTIMIZERS)
    workload = resolve("lenet5")
    parameters = trace_workload(workload, DIGITS).parameter_bytes
    more = needed({"optimizer": "adam"}) - needed({"optimizer": "sgd"})
    assert more == pytest.approx(1.15 * 2 * parameters, rel=0.01)


def test_half_precision_saves_activation_memory():
    assert needed({"batch": 4096, "precision": "bfloat16"}) < 0.95 * needed({"batch": 4096})


MEASURED = """
from pathlib import Path

from paceline.step.build import assemble, load_data
from paceline.step.choose import make_step
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
    predicted = memory_bytes(trace_workload(workload, data_shape_of(workload)), workload, on_gpu=False)
    run = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    assert 0.5 < predicted / int(run.stdout) < 2.0
