"""Devices, links, machines and clusters: what they refuse, what they add up to, and that a table gives them back."""

from __future__ import annotations

import dataclasses

import pytest

from paceline.cluster import (
    Cluster,
    Device,
    DeviceCount,
    Link,
    Machine,
    MachineCount,
    Peak,
    cluster_from_table,
    find_device,
    find_link,
    find_machine,
    known_devices,
    known_links,
    known_machines,
)
from paceline.cluster.device import device_from_table
from paceline.cluster.link import link_from_table
from paceline.errors import InputError
from paceline.record import from_json, to_json

CARD = Device("card", "gpu", Peak(float32=1e13), memory_bytes=2**33, memory_bandwidth=3e11)
BUS = Link("bus", 1e-5, 1e10)
BOX = Machine("box", (DeviceCount(CARD, 2),), host_device=BUS, price_per_hour=1.5, spot_price_per_hour=0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": ""}, "device name=''"),
        ({"kind": "tpu"}, "kind='tpu' is unknown: did you mean gpu"),
        ({"peak": Peak(float32=-1.0)}, "float32=-1"),
        ({"peak": Peak(tf32=float("nan"))}, "tf32=nan"),
        ({"memory_bytes": -1}, "memory_bytes=-1 should be a whole number of at least 1"),
        ({"memory_bytes": 1.5}, "memory_bytes=1.5"),
        ({"memory_bandwidth": 0.0}, "memory_bandwidth=0"),
        ({"cores": True}, "cores=True"),
        ({"year": 19}, "year=19 should be a whole number of at least 1970"),
        ({"relative": 3}, "relative=3 should be text"),
    ],
)
def test_a_wrong_device_is_refused_by_key(change, words):
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        dataclasses.replace(CARD, **change)


@pytest.mark.parametrize(
    "change",
    [{"latency_s": -1.0}, {"latency_s": "1"}, {"bandwidth": 0.0}, {"bandwidth": float("inf")}, {"shared": "no"}],
)
def test_a_wrong_link_is_refused(change):
    with pytest.raises(InputError, match=f"link 'bus': {next(iter(change))}"):
        dataclasses.replace(BUS, **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"devices": ()}, "has no devices"),
        ({"vcpus": 0}, "vcpus=0"),
        ({"memory_bytes": -5}, "memory_bytes=-5"),
        ({"price_per_hour": -0.1}, "price_per_hour=-0.1 should be a finite number of at least 0"),
        ({"spot_price_per_hour": 10**400}, "spot_price_per_hour=1000"),
        ({"price_date": "yesterday"}, "YYYY-MM-DD"),
        ({"price_date": "2026-13"}, "YYYY-MM-DD"),
        ({"currency": ""}, "currency=''"),
    ],
)
def test_a_wrong_machine_is_refused_by_key(change, words):
    with pytest.raises(InputError, match=words):
        dataclasses.replace(BOX, **change)


def test_a_link_that_is_not_known_is_asked_for_with_what_to_write():
    assert BOX.link("host_device") is BUS
    with pytest.raises(
        InputError, match=r"machine 'box' has no disk link .*write disk = \"NVMe SSD\" or disk = { latency"
    ):
        BOX.link("disk")
    with pytest.raises(InputError, match="did you mean host_device"):
        BOX.link("host-device")


def test_a_machine_s_price_is_by_the_second():
    assert BOX.price(7200) == 3.0
    assert BOX.price(7200, spot=True) == 1.0
    assert dataclasses.replace(BOX, price_per_hour=None).price(7200) is None


def test_a_shared_link_takes_messages_one_after_another():
    assert BUS.seconds(1e10) == pytest.approx(1.00001)
    assert BUS.seconds(1e10, 4) == pytest.approx(4.00001)
    assert dataclasses.replace(BUS, shared=False).seconds(1e10, 4) == pytest.approx(1.00001)


def test_a_cluster_adds_up():
    other = dataclasses.replace(BOX, name="other", price_per_hour=1.0)
    cluster = Cluster("both", (MachineCount(BOX, 2), MachineCount(other, 3)), BUS)
    assert cluster.machine_count == 5 and cluster.count("gpu") == 10 and cluster.count("cpu") == 0
    assert cluster.price_per_hour == 6.0 and cluster.spot_price_per_hour == 2.5
    assert cluster.machine("OTHER") is other
    with pytest.raises(InputError, match="did you mean other"):
        cluster.machine("othr")
    free = dataclasses.replace(other, price_per_hour=None)
    assert Cluster("both", (MachineCount(BOX), MachineCount(free)), BUS).price_per_hour is None


def test_the_network_between_machines_is_the_slowest_of_theirs():
    slow = dataclasses.replace(BOX, name="slow", network=Link("slow", 1e-4, 1e8))
    fast = dataclasses.replace(BOX, name="fast", network=Link("fast", 1e-5, 1e9))
    assert Cluster("c", (MachineCount(slow), MachineCount(fast))).network == slow.network
    assert Cluster("c", (MachineCount(BOX),)).network is None
    with pytest.raises(InputError, match="machine 'box' has no network link"):
        Cluster("c", (MachineCount(BOX, 2),))


def test_a_cluster_s_contradictions_are_refused():
    with pytest.raises(InputError, match="has no machines"):
        Cluster("c", ())
    with pytest.raises(InputError, match="two machines 'box'"):
        Cluster("c", (MachineCount(BOX), MachineCount(BOX)), BUS)
    euro = dataclasses.replace(BOX, name="euro", currency="EUR")
    with pytest.raises(InputError, match="several currencies"):
        Cluster("c", (MachineCount(BOX), MachineCount(euro)), BUS)
    with pytest.raises(InputError, match="count=0"):
        MachineCount(BOX, 0)


def test_every_record_comes_back_from_its_table():
    for device in known_devices():
        assert device_from_table(device.to_table(), "d") == device
    for link in known_links():
        assert link_from_table(link.to_table(), "l") == link
    machines = tuple(MachineCount(machine, 2) for machine in known_machines())
    cluster = Cluster("all", machines, find_link("100 Gb/s Ethernet"))
    assert cluster_from_table(cluster.to_table()) == cluster


def test_every_record_comes_back_from_json():
    cluster = Cluster("all", (MachineCount(find_machine("p5.48xlarge"), 2),))
    assert from_json(Cluster, to_json(cluster), "c") == cluster


def test_a_peak_is_asked_for_by_precision():
    assert find_device("A100").peak_of("bfloat16") == 312e12
    assert find_device("K20X").peak_of("tf32") is None
    assert find_device("A100").peak_of("float64") is None
    with pytest.raises(InputError, match="did you mean bfloat16"):
        find_device("A100").peak_of("bfloat61")
