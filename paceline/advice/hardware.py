"""The hardware at hand, for predictions and simulations: this machine, or devices and machines of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.advice.task import HERE, TaskDescription
from paceline.cluster import Device, DeviceCount, Link, Machine, find_device, find_link, find_machine
from paceline.errors import InputError

PER_MACHINE = 8
"""Devices of a machine, where only a device is named."""
BUS, NETWORK = "PCIe 4.0 x16", "100 Gb/s Ethernet"
"""Links that are assumed, where only a device is named."""


@dataclass(frozen=True)
class HardwareOption:
    name: str
    is_here: bool
    device: Device | None
    """For predictions; None: a device of this machine that is neither calibrated nor in the catalogue."""
    machine: Machine | None
    """One of the machines, for simulations."""
    per_machine: int
    memory_bytes: int | None
    """Of one device."""
    assumed: str = ""
    """What was assumed about its links."""

    @property
    def is_gpu(self) -> bool:
        return self.device is not None and self.device.kind == "gpu"


def hardware_options(task: TaskDescription) -> tuple[HardwareOption, ...]:
    names = [name.strip() for name in task.device.split(",") if name.strip()]
    if not names:
        raise InputError(f"`device={task.device!r}` names no device: write here, or names of the catalogue")
    link = None if task.link is None else find_link(task.link)
    found = [_here() if name.lower() == HERE else _named(name, task.devices, link) for name in names]
    for option in found:
        if option.is_here and task.devices > option.per_machine:
            have = "GPU" if option.is_gpu else "processor"
            raise InputError(
                f"`devices={task.devices}`: this machine has {option.per_machine} {have}; name a device or machine of "
                "the catalogue for more"
            )
    return tuple(found)


def _named(name: str, devices: int, link: Link | None) -> HardwareOption:
    """A machine of the catalogue, or a device in machines with usual links."""
    try:
        machine = find_machine(name)
    except InputError:
        device = _device(name)
        gpu = device.kind == "gpu"
        each = min(devices, PER_MACHINE) if gpu else 1
        made = Machine(
            f"machine with {device.name}", (DeviceCount(device, each),),
            host_device=find_link(BUS) if gpu else None, network=link or find_link(NETWORK),
        )  # fmt: skip
        parts = [f"{each} on a bus of {BUS}"] if gpu and devices > 1 else []
        parts += [made.network.name] if made.network is not None and devices > each else []
        return HardwareOption(device.name, False, device, made, each, device.memory_bytes, " and ".join(parts))
    kind = "gpu" if machine.count("gpu") else "cpu"
    held = next(each for each in machine.devices if each.device.kind == kind)
    memory_bytes = held.device.memory_bytes if kind == "gpu" else machine.memory_bytes
    if link is not None:
        from dataclasses import replace

        machine = replace(machine, network=link)
    return HardwareOption(machine.name, False, held.device, machine, held.count, memory_bytes)


def _device(name: str) -> Device:
    try:
        return find_device(name)
    except InputError as error:
        raise InputError(f"`device`: {error} (or a machine of the catalogue, or here for this machine)") from error


def _here() -> HardwareOption:
    """This machine: predicted if it is calibrated, or if the catalogue has its device."""
    import torch

    from paceline.cost.calibrations import calibration_path
    from paceline.cost.device_calibration import find_catalogue_device
    from paceline.cost.this_machine import this_machine
    from paceline.free_memory import free_memory_bytes
    from paceline.step.placement import choose_device, device_name

    chosen = choose_device("auto")[0]
    name = device_name(chosen)
    count = max(1, torch.cuda.device_count()) if chosen.type == "cuda" else 1
    memory_bytes = (
        torch.cuda.get_device_properties(chosen).total_memory if chosen.type == "cuda" else free_memory_bytes()
    )
    if calibration_path(name).exists():
        machine = this_machine()
        return HardwareOption(f"{name}, this machine", True, machine.devices[0].device, machine, count, memory_bytes)
    return HardwareOption(f"{name}, this machine", True, find_catalogue_device(name), None, count, memory_bytes)
