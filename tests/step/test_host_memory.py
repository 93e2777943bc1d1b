"""Freed memory stays with a process while it trains, and goes back to the system afterwards."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import resource
from pathlib import Path
import torch
from paceline.measurement import measuring
from paceline.step.host_memory import freed_memory_given_back, is_kept, keep_freed_memory
from paceline.workload import resolve

MANY = 128 << 20

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

def left_by_a_large_tensor():
    before = resident_bytes()
    torch.ones(MANY, dtype=torch.uint8)
    return resident_bytes() - before

assert left_by_a_large_tensor() < MANY / 2
with freed_memory_given_back():
    keep_freed_memory()
    assert is_kept()
    assert left_by_a_large_tensor() > MANY / 2
    # The allocator keeps the remainders of aligned memory for a while, and each of them separates two free blocks.
    assert min(left_by_a_large_tensor() for _ in range(20)) < MANY / 2, "a later one has the memory of an earlier one"
    with freed_memory_given_back():
        keep_freed_memory()
    assert is_kept(), "an inner caller leaves it as it was"
    inside = resident_bytes()
assert not is_kept()
assert resident_bytes() < inside - MANY / 2


def faults_of_a_tensor():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(MANY // 8, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of_a_tensor()
assert min(faults_of_a_tensor() for _ in range(4)) < 1000, "tensors below 32 MB reuse memory, as they do by default"

seen = []
real = measuring.assemble
measuring.assemble = lambda *args, **more: (real(*args, **more), seen.append(is_kept()))[0]
workload = resolve("mlp", {"data": "synthetic:1x8x8/10:40", "batch": 20, "device": "cpu"})
measuring.measure(workload, iterations=20, choose=measuring.PLAIN)
assert seen == [True]
assert not is_kept(), "the setting of whoever measures comes back"
"""


def test_freed_memory_is_kept_while_a_step_runs_and_then_goes_back_as_by_default():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
