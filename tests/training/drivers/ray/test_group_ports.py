"""Members of a group listen at the node's address, on a port of the range that the user has set."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
import torch
from torch import distributed

from paceline.errors import StrategyError
from paceline.strategy.presets import find_strategy
from paceline.training.collective import choose_on_cluster
from paceline.training.drivers.ray import group_ports
from paceline.training.drivers.ray.group_ports import interface_of, listening_device
from paceline.training.port_range import parse_port_range
from paceline.training.settings import DriverSettings
from tests.contract.small_training import workload
from tests.training.drivers.ray.in_process import job_of
from tests.training.drivers.ray.test_groups import GLOO, averages, parameters  # noqa: F401
from tests.training.drivers.ray.test_server_and_workers import MADE, trained

HERE = "127.0.0.1"
FIRST, LAST = map(int, group_ports.SYSTEM_RANGE.read_text().split())
PORTS = range(FIRST + 1000, FIRST + 1000 + max(1000, (LAST - FIRST) // 20))


def device():
    return distributed.ProcessGroupGloo.create_device(hostname=HERE)


def test_a_device_listens_at_the_address_on_a_port_of_the_range():
    before = group_ports._listening().items()  # groups of other tests in this process
    made = listening_device(device, HERE, PORTS)
    ((_, port),) = group_ports._listening().items() - before
    assert port in PORTS
    with socket.create_connection((HERE, port), 5.0):
        pass
    del made
    assert group_ports._listening().items() == before


def test_a_group_averages_on_ports_of_the_range(averages, monkeypatch):  # noqa: F811
    created = []
    drawn = listening_device

    def watched(*arguments):
        created.append(drawn(*arguments))
        assert any(port in PORTS for port in group_ports._listening().values())
        return created[-1]

    monkeypatch.setattr("paceline.training.drivers.ray.member_link.listening_device", watched)
    ports = (PORTS.start, PORTS.stop)
    at_server, limited = (
        trained(*job_of(workload(**MADE), find_strategy("sync"), 2, **how)) for how in ({}, {**GLOO, "ports": ports})
    )
    assert len(created) == 2 and averages and all(part is not None for part in averages)
    assert torch.equal(parameters(at_server), parameters(limited))


def test_an_exhausted_range_is_one_line_at_once():
    with contextlib.ExitStack() as opened:
        for port in range(PORTS.start, PORTS.start + 3):
            taken = opened.enter_context(socket.socket())
            taken.bind((HERE, port))
            taken.listen()
        began_s = time.monotonic()
        with pytest.raises(StrategyError, match=f"^no port of `port_range={PORTS.start}-.*` is free at {HERE}.*$"):
            listening_device(device, HERE, range(PORTS.start, PORTS.start + 3))
        assert time.monotonic() - began_s < group_ports.DRAW_WITHIN_S / 2


def test_a_range_that_the_system_never_chooses_from_is_an_error():
    with pytest.raises(StrategyError, match="ip_local_port_range"):
        listening_device(device, HERE, range(2000, 3000))
    with pytest.raises(StrategyError, match="ip_local_port_range"):
        listening_device(device, HERE, range(LAST - 10, LAST))


def test_a_port_that_does_not_come_is_waited_for_only_so_long(monkeypatch):
    monkeypatch.setattr(group_ports, "DRAW_WITHIN_S", 0.05)
    with pytest.raises(StrategyError, match=r"got no port .* within 0\.05 s"):
        listening_device(object, HERE, PORTS)


def test_the_error_of_a_worker_is_not_taken_for_a_lost_member():
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2, **GLOO, ports=(2000, 3000))
    with pytest.raises(StrategyError, match="ip_local_port_range"):
        trained(job, state)


def test_the_interface_of_an_address():
    assert interface_of(HERE) == "lo" and interface_of("192.0.2.1") == ""


def test_ranges_as_text():
    assert parse_port_range("40000-40999") == range(40000, 41000) and not parse_port_range("")
    for wrong in ("40000", "40999-40000", "80-90", "40000-70000", "a-b"):
        with pytest.raises(StrategyError, match="FIRST-LAST"):
            DriverSettings(port_range=wrong)


def test_only_gloo_keeps_to_a_range():
    sync = find_strategy("sync")
    assert choose_on_cluster("auto", sync, 2, on_gpus=True) == ("nccl", False)
    assert choose_on_cluster("auto", sync, 2, on_gpus=True, ports="40000-40999") == ("gloo", False)
    with pytest.raises(StrategyError, match="nccl does not keep to"):
        choose_on_cluster("nccl", sync, 2, on_gpus=True, ports="40000-40999")
