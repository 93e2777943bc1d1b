"""Memory limits: a worker on its device, and all workers and the server on their machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cluster import Cluster, Device, DeviceCount, Machine, MachineCount, find_link, find_machine
from paceline.planning.candidate import Candidate
from paceline.planning.machine_options import MachineOption, options_of
from paceline.planning.memory_fit import CONTEXT_BYTES, fits, is_known
from paceline.planning.objective import Objective
from paceline.planning.planning import make_plan
from paceline.strategy.presets import find_strategy
from tests.planning.invented import WORKLOAD, InventedPredictions

GIB = 1 << 30
CARD = Device("card", "gpu", memory_bytes=10 * GIB)
CORE = Device("core", "cpu", cores=1)


def place(device: Device, memory_bytes: int | None) -> MachineOption:
    machine = Machine(
        "box", (DeviceCount(device, 4),), vcpus=4, memory_bytes=memory_bytes, host_device=find_link("PCIe 4.0 x16"),
        network=find_link("10 Gb/s Ethernet"),
    )  # fmt: skip
    return MachineOption(machine, device, 4, 4, machine.network)


def candidate(where: MachineOption, workers: int, strategy: str = "sync", each: int = 4) -> Candidate:
    return Candidate("box", where.device.name, workers, min(workers, each), find_strategy(strategy), 64, "float32")


@pytest.mark.parametrize(("needed", "expected"), [(int(8.99 * GIB), True), (int(9.01 * GIB), False)])
def test_a_worker_with_its_context_has_nine_tenths_of_its_device(needed, expected):
    needed -= CONTEXT_BYTES
    where = place(CARD, 64 * GIB)
    for workers in (1, 4, 8):
        assert fits(candidate(where, workers), where, needed, GIB // 8) == expected


def test_workers_on_cpus_share_their_machine_s_memory():
    where = place(CORE, 10 * GIB)
    assert fits(candidate(where, 1), where, 8 * GIB, 0)
    assert not fits(candidate(where, 2), where, 8 * GIB, 0)
    assert fits(candidate(where, 4, each=1), where, 8 * GIB, 0), "each has a machine of its own"


def test_slots_and_server_need_memory_too():
    """4 x the parameters for each worker, and 8 x for a server beside them."""
    where = place(CORE, 10 * GIB)
    needed, parameters = 2 * GIB, GIB // 4
    assert fits(candidate(where, 2, "downpour"), where, needed, parameters), "4 + 2 + 2 of 9"
    assert not fits(candidate(where, 4, "downpour"), where, needed, parameters), "8 + 4 + 2 of 9"
    assert fits(candidate(where, 4, "downpour"), where, GIB // 2, parameters), "2 + 4 + 2 of 9"


def test_what_gpus_exchange_with_a_server_lies_in_their_host():
    where = place(CARD, 4 * GIB)
    assert fits(candidate(where, 4), where, GIB, GIB), "an all-reduce stays on the devices"
    assert not fits(candidate(where, 4, "downpour"), where, GIB, GIB)


def test_memory_of_unknown_size_is_no_limit_and_is_reported():
    where = place(replace(CARD, memory_bytes=None), None)
    assert fits(candidate(where, 4), where, 10**15, GIB) and not is_known(where)
    assert is_known(place(CARD, None)) and is_known(place(CORE, GIB)) and not is_known(place(CORE, None))
    machine = replace(find_machine("g5.xlarge"), devices=(DeviceCount(replace(
        find_machine("g5.xlarge").devices[0].device, memory_bytes=None)),))  # fmt: skip
    cluster = Cluster("lab", (MachineCount(machine),))
    plan = make_plan(WORKLOAD, options_of(cluster), Objective(epochs=1), predict=InventedPredictions())
    assert plan.reasons[-1] == "it may not fit: the memory of A10G is not known"
