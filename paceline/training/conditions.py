"""Describes this machine for the record of a measurement or a run."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from paceline import busy_machine
from paceline.step.placement import available_cores, device_name
from paceline.training.run import Conditions


def current_conditions(device: torch.device, precision: str) -> Conditions:
    return Conditions(
        device=str(device),
        device_name=device_name(device),
        threads=torch.get_num_threads(),
        cores=available_cores(),
        precision=precision,
        python=platform.python_version(),
        torch=torch.__version__,
        paceline=own_version(),
        platform=f"{platform.system()} {platform.machine()}",
        busy=busy_machine.busy_now(),
        made_in=str(Path.cwd()),
    )


def own_version() -> str:
    try:
        return version("paceline")
    except PackageNotFoundError:
        return "not installed"
