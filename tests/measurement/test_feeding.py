"""Data loading over a shared bus takes the time its arithmetic says; images load prefetched and on request."""

from __future__ import annotations

import pytest

from paceline import record
from paceline.cost.shared_bus import SharedBus
from paceline.errors import InputError
from paceline.measurement.feeding import Feeding, feed_stand_ins
from paceline.measurement.feeding_images import feed_images
from paceline.workload import resolve

REFRESH_S, COMPUTE_S = 0.004, 0.008


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("devices", [1, 4])
def test_an_iteration_takes_at_least_the_computed_time(devices, ahead, tmp_path):
    reported = []
    found = feed_stand_ins(
        devices, ahead=ahead, refresh_s=REFRESH_S, compute_s=COMPUTE_S, iterations=20,
        watch=lambda done, all_: reported.append((done, all_)),
    )  # fmt: skip
    expected_s = SharedBus(REFRESH_S, 1.0, devices).iteration_s(COMPUTE_S, ahead=ahead)
    assert 0.9 * expected_s < found.iteration_s.median_s < 5 * expected_s  # other programs may want the cores
    assert found.iterations == 20 and reported[-1] == (23, 23)
    assert found.waiting_s < found.iteration_s.median_s or not ahead
    record.save(found, tmp_path / "record.json")
    assert record.load(tmp_path / "record.json") == found


@pytest.mark.parametrize(
    ("given", "words"),
    [({"devices": 0}, "devices=0"), ({"refresh_s": 0.0}, "refresh_s=0"), ({"compute_s": -1.0}, "compute_s=-1")],
)
def test_invalid_arguments_are_rejected(given, words):
    with pytest.raises(InputError, match=words):
        feed_stand_ins(**{"devices": 1, "ahead": True, "refresh_s": 0.1, "compute_s": 0.1, **given})


@pytest.mark.parametrize("ahead", [False, True])
def test_a_network_trains_on_images(ahead):
    workload = resolve("lenet5", {"data": "synthetic:3x32x32/10", "batch": 4, "device": "cpu"})
    found = feed_images(workload, ahead=ahead, iterations=20)
    assert isinstance(found, Feeding) and (found.devices, found.ahead, found.iterations) == (1, ahead, 20)
    assert found.refresh_s > 0 and found.compute_s > 0 and found.iteration_s.median_s > 0
    assert found.conditions["network"] == "lenet5" and found.conditions["size"] == "32"
