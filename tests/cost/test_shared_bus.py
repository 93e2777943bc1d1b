"""Several GPUs on one bus: the arithmetic of a guide of 2018."""

from __future__ import annotations

import pytest

from paceline.cluster import find_link
from paceline.cost.shared_bus import SharedBus
from paceline.errors import InputError


def bus(devices: int) -> SharedBus:
    """8 GB each, over PCIe 4.0 with sixteen lanes."""
    return SharedBus(8e9, find_link("PCIe 4.0 x16").bandwidth, devices)


def test_refreshing_8_gb_at_31_5_gb_per_second():
    assert round(bus(1).refresh_s, 6) == 0.253968
    assert round(bus(4).all_s, 6) == 1.015873
    assert round(bus(3).all_s, 4) == round(bus(4).others_s, 4) == 0.7619


def test_half_a_second_of_computing_leaves_a_quarter_idle():
    assert round(bus(4).idle_s(0.5), 4) == 0.2619
    assert round(100 * bus(4).useful_share(0.5), 2) == pytest.approx(65.62, abs=0.011)
    assert bus(4).useful_share(0.5) == pytest.approx(0.65625)


def test_a_device_that_computes_long_enough_is_never_idle():
    assert bus(4).idle_s(0.8) == 0.0 and bus(4).useful_share(0.8) == 1.0
    assert bus(1).idle_s(0.1) == 0.0 and bus(1).useful_share(0.1) == 1.0
    assert bus(4).useful_share(0.0) == 0.0 and bus(1).useful_share(0.0) == 0.0


def test_prefetching_hides_the_bus_until_it_is_always_busy():
    assert [round(bus(n).iteration_s(0.5), 4) for n in (1, 2, 3, 4)] == [0.754, 0.754, 0.7619, 1.0159]
    assert [round(bus(n).iteration_s(0.5, ahead=True), 4) for n in (1, 2, 3, 4)] == [0.5, 0.5079, 0.7619, 1.0159]
    # What the guide calls idle is what is left of it after a refresh and computing.
    assert bus(4).iteration_s(0.5) - bus(4).refresh_s - 0.5 == pytest.approx(bus(4).idle_s(0.5))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0, 1.0, 1), "memory_bytes=0"), ((1.0, -1.0, 1), "bandwidth=-1"), ((1.0, 1.0, 0), "devices=0")],
)
def test_a_wrong_bus_is_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        SharedBus(*arguments)


def test_a_negative_time_is_refused():
    with pytest.raises(InputError, match="compute_s=-1"):
        bus(2).idle_s(-1)
