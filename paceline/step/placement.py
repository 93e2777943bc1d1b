"""Where and how precisely to compute: the device, its free memory, threads and number formats."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from paceline.data.fields import Inputs
from paceline.errors import WorkloadError
from paceline.free_memory import free_memory_bytes
from paceline.step.arithmetic import flops_of
from paceline.step.denormals import denormals_flushed
from paceline.step.host_memory import freed_memory_given_back
from paceline.workload import Workload


def choose_device(name: str) -> tuple[torch.device, str]:
    """The device a name stands for, and a line to tell the user when it is not the obvious one."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device()), ""
        return torch.device("cpu"), "no GPU found: training on the CPU"
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = device.index or 0
        if index >= count:
            here = f"this machine has {count or 'no'} GPU{'s' * (count > 1)}"
            raise WorkloadError(f"device {name!r} is not available: {here}; use `device='auto'` or cpu")
        return torch.device("cuda", index), ""
    return device, ""


def processor_name() -> str:
    try:
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match.group(1).strip() if match else platform.processor() or "CPU"


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


# Below this much arithmetic per thread in a forward pass another thread is hardly faster, and where another program
# wants the core it makes everything wait: the threads of an operation meet many times in a step.
FLOPS_PER_THREAD = 30e6
# Reading and updating a parameter, whatever the batch, takes about as long: a thread has a million of them.
FLOPS_PER_PARAMETER = 30.0
MOST_THREADS = 1024  # with millions the library ends the program


def choose_threads(asked: int, network: nn.Module, sample: Inputs, batch: int) -> int:
    """Threads of a CPU operation: as asked, else one for little work and up to all cores for more."""
    if asked > MOST_THREADS:
        raise WorkloadError(f"threads={asked} is more than {MOST_THREADS}: use the {available_cores()} cores there are")
    if asked:
        return asked
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return threads_for(flops_of(network, sample) * batch, parameters, available_cores())


def threads_for(flops: float, parameters: int, cores: int) -> int:
    """Threads for a step of so much arithmetic in its forward pass: a power of two, or all cores."""
    work = (flops + FLOPS_PER_PARAMETER * parameters) / FLOPS_PER_THREAD
    return cores if work >= cores else min(cores, 1 << max(0, math.ceil(math.log2(max(work, 1.0)))))


@contextmanager
def cpu_settings_restored() -> Iterator[None]:
    """Denormal numbers are zero within. Afterwards the caller has its own settings again: threads, whether freed memory
    is kept, denormal numbers."""
    before = torch.get_num_threads()
    try:
        with freed_memory_given_back(), denormals_flushed():
            yield
    finally:
        torch.set_num_threads(before)


def device_free_bytes(device: torch.device) -> int:
    """The free memory of a GPU, or of the machine."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else free_memory_bytes()


def dtype_of(workload: Workload) -> torch.dtype:
    """The type of parameters and inputs; bfloat16 is a matter of the operations between."""
    return torch.float64 if workload.precision == "float64" else torch.float32


def set_number_formats(workload: Workload, device: torch.device) -> None:
    """float32 means float32: the 10-bit products of tf32 are used only when asked for."""
    if device.type == "cuda":
        allowed = workload.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed
        torch.backends.cudnn.benchmark = True
    elif workload.precision == "tf32":
        raise WorkloadError("precision 'tf32' needs a GPU; use float32 on the CPU")
