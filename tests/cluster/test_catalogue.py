"""The catalogue's figures, and the price table of 2017 that follows from them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.cluster import find_device, find_link, find_machine, known_devices, known_machines, price_table
from paceline.cluster.device import KINDS
from paceline.errors import InputError

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "float32", "memory", "bandwidth", "relative"),
    [
        ("K20X", 3.95e12, 6, 250e9, "kepler"),
        ("P600", 1.195e12, 2, 64e9, "pascal"),
        ("K80", 8.73e12, 24, 480e9, "kepler"),
        ("GTX 1080", 8.873e12, 8, 320e9, "pascal"),
        ("T4", 8.1e12, 16, 320e9, "turing"),
        ("V100", 15.7e12, 16, 900e9, "volta"),
        ("L4", 30.3e12, 24, 300e9, "ada"),
        ("A10G", 35e12, 24, 600e9, "ampere"),
        ("A100 40GB", 19.5e12, 40, 1555e9, "ampere"),
        ("A100-80GB", 19.5e12, 80, 2039e9, "ampere"),
        ("H100", 67e12, 80, 3350e9, "hopper"),
        ("H100 PCIe", 51e12, 80, 2000e9, "hopper"),
        ("H200", 67e12, 141, 4800e9, "hopper"),
        ("B200", 75e12, 180, 8000e9, "blackwell"),
    ],
)
def test_a_gpu_is_as_its_data_sheet_says(name, float32, memory, bandwidth, relative):
    device = find_device(name)
    assert device.kind == "gpu" and device.relative == relative
    assert (device.peak.float32, device.memory_bytes, device.memory_bandwidth) == (float32, memory * GIB, bandwidth)


@pytest.mark.parametrize(
    ("name", "cores", "threads", "float32"),
    [("i7-3820", 4, 8, 4 * 3.6e9 * 16), ("i7-6700", 4, 8, 4 * 3.4e9 * 32), ("EPYC 7763", 64, 128, 64 * 2.45e9 * 32)],
)
def test_a_cpu_s_peak_is_cores_times_clock_times_width(name, cores, threads, float32):
    device = find_device(name)
    assert (device.cores, device.threads) == (cores, threads)
    assert device.peak.float32 == pytest.approx(float32)


def test_every_device_is_whole():
    for device in known_devices():
        assert device.kind in KINDS and device.peak.float32 and device.memory_bandwidth, device.name
        assert device.relative and device.year and device.source, device.name
        assert (device.memory_bytes is not None) == (device.kind == "gpu"), device.name
        rising = [device.peak.float32, device.peak.tf32 or 0, device.peak.bfloat16 or 0]
        assert not device.peak.tf32 or rising == sorted(rising), device.name


def test_what_was_not_checked_says_so():
    """A derived figure and a price from memory are worth having, and worth knowing for what they are."""
    assert all("unchecked" in device.source for device in known_devices() if device.kind == "cpu")
    for machine in known_machines():
        assert any(word in machine.source for word in ("a study of 2017", "SkyPilot", "unchecked")), machine.name


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("PCIe 2.0 x16", 8e9),
        ("pcie-4.0-x16", 31.5e9),
        ("PCIe 6.0 x16", 121e9),
        ("NVLink 3", 300e9),
        ("1 Gb/s Ethernet", 0.125e9),
        ("100 Gb/s InfiniBand", 12.5e9),
        ("SSD", 3.5e9),
        ("SSD RAID 0", 17e9),
    ],
)
def test_a_link_is_in_bytes_a_second(name, bandwidth):
    assert find_link(name).bandwidth == pytest.approx(bandwidth)


def test_names_are_found_whatever_their_case_and_dashes():
    assert find_device("gtx-1080") is find_device("GeForce GTX 1080") is find_device("GTX 1080")
    assert find_machine("P5.48XLARGE").name == "p5.48xlarge"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"no device 'gtx 1081': did you mean GTX 1080 or GTX 1080 Ti\?"):
        find_device("gtx 1081")
    with pytest.raises(InputError, match="no link 'zzz': see paceline catalogue links"):
        find_link("zzz")


def test_every_price_is_dated_and_every_gpu_machine_has_its_links():
    for machine in known_machines():
        assert machine.price_per_hour is not None and machine.price_date and machine.source, machine.name
        assert machine.network is not None and machine.disk is not None, machine.name
        assert machine.host_device is not None or not machine.count("gpu"), machine.name
        assert machine.device_device is None or machine.count("gpu") > 1, machine.name


def test_the_price_table_of_2017_comes_out_to_the_cent():
    found = [
        (row.vcpus, row.memory_bytes / GIB, row.gpu_memory_bytes / GIB, round(row.per_year, 2)) for row in price_table()
    ]
    assert found == [
        (4, 15, 0, 1272.17),
        (32, 120, 0, 12244.24),
        (64, 416, 0, 27156.53),
        (1, 3.75, 24, 4598.06),
        (8, 30, 96, 20595.77),
        (16, 104, 192, 41410.21),
    ]
    assert all(round(row.per_year, 2) == row.printed_per_year for row in price_table())
    assert all(row.machine.price_date == "2017-08" for row in price_table())


def test_a_gpu_of_2017_has_no_one_price():
    """Which is why the rows' prices are kept: what a GPU adds to its machine differs."""
    added = [row.gpu_per_hour for row in price_table() if row.gpus]
    assert added == pytest.approx([0.48859, 0.50042, 0.49402], abs=1e-5)


def test_reading_the_catalogue_needs_no_torch():
    program = "import paceline.cluster as c, sys\nc.price_table()\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
