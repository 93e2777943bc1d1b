"""This machine as one of a cluster, as its calibration describes it: workers are its processes."""

from __future__ import annotations

from dataclasses import replace

import torch

from paceline.cluster import Device, DeviceCount, Link, Machine, find_link
from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import calibration_path, local_calibration
from paceline.cost.device_calibration import data_sheet_of
from paceline.errors import InputError
from paceline.measurement.links import NODE_TO_NODE
from paceline.step.placement import choose_device, device_name

HERE = "here"
"""In place of a cluster's name."""
NAME = "this machine"
USUAL_BUS = "PCIe 4.0 x16"


def this_machine(device: str = "auto") -> Machine:
    """With the device that was calibrated, and as many of it as there are."""
    name = device_name(choose_device(device)[0])
    if not calibration_path(name).exists():
        raise InputError(
            f"{name} of this machine is not calibrated yet: run `paceline.calibrate(local_workers=True)` first"
        )
    return machine_of(local_calibration(device))


def machine_of(calibration: Calibration) -> Machine:
    """The machine on which a calibration was made, as far as that tells; it has no price, and no others beside it."""
    name, memory_bytes, cores = calibration.device_name, calibration.memory_bytes or None, calibration.cores or None
    if calibration.device == "cpu":
        return Machine(
            NAME, (DeviceCount(Device(name, "cpu", cores=cores)),), vcpus=cores, memory_bytes=memory_bytes,
            network=node_link(calibration),
        )  # fmt: skip
    sheet = data_sheet_of(calibration) or Device(name, "gpu")
    gpu = replace(sheet, name=name, memory_bytes=memory_bytes or sheet.memory_bytes)
    return Machine(
        NAME, (DeviceCount(gpu, max(1, torch.cuda.device_count())),), vcpus=cores, host_device=_bus(calibration),
        network=node_link(calibration),
    )  # fmt: skip


def node_link(calibration: Calibration) -> Link | None:
    """The network between the nodes of a Ray cluster, where it was calibrated."""
    found = next((link for link in calibration.links if link.link == NODE_TO_NODE), None)
    return None if found is None else Link(NODE_TO_NODE, found.latency_s, found.bandwidth, source="measured")


def a_worker_a_core(machine: Machine) -> Machine:
    """The same with its cores as devices, so that each can have a worker; of a GPU machine, the same."""
    (each,) = machine.devices
    if each.device.kind == "gpu" or not each.device.cores:
        return machine
    return replace(machine, devices=(DeviceCount(Device(each.device.name, "cpu", cores=1), each.device.cores),))


def _bus(calibration: Calibration) -> Link:
    """As it was measured, from memory that the device can read by itself."""
    found = [link for link in calibration.links if link.link.startswith("host to device")]
    if not found:
        return find_link(USUAL_BUS)
    best = max(found, key=lambda link: link.bandwidth)
    return Link("host to device", best.latency_s, best.bandwidth, source="measured")
