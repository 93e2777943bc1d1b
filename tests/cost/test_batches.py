"""A larger batch does not take less time: no prediction falls when the batch doubles, on any device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from threadpoolctl import threadpool_limits

from paceline.cluster import Device, Peak, find_device, known_devices
from paceline.cost.device_scaling import CORE_BANDWIDTH, _reached, scaled
from paceline.cost.predicting import predict
from paceline.step.placement import FLOPS_PER_PARAMETER, FLOPS_PER_THREAD, threads_for
from paceline.workload import resolve
from tests.cost.invented import Law, calibration

DATA = {"mlp": "digits", "lenet5": "digits", "resnet20": "synthetic:3x32x32/10", "transformer": "tokens:64/96"}
BATCHES = [1 << power for power in range(13)]
MOST_FALL = 0.05


def falls(network: str, device: str) -> list[tuple[str, int, float]]:
    """Batches at which the predicted iteration is shorter than at half of them."""
    times = [
        predict(resolve(network, {"batch": batch, "data": DATA[network]}), find_device(device)).iteration_s
        for batch in BATCHES
    ]
    pairs = zip(BATCHES[1:], times, times[1:], strict=False)
    return [(device, batch, after / before) for batch, before, after in pairs if after < (1 - MOST_FALL) * before]


@pytest.mark.parametrize("device", ["EPYC 9R14", "H200"])
def test_a_larger_batch_takes_no_less_time(device):
    with threadpool_limits(limits=1):
        assert not falls("mlp", device)


@pytest.mark.parametrize(
    "network",
    [pytest.param(n, marks=pytest.mark.slow if n in ("resnet20", "transformer") else pytest.mark.soak) for n in DATA],
)
def test_a_larger_batch_takes_no_less_time_on_any_device(network):
    with threadpool_limits(limits=1):
        assert not [fall for device in known_devices() for fall in falls(network, device.name)]


def test_threads_grow_with_the_work():
    found = [threads_for(FLOPS_PER_THREAD * work, 0, 6) for work in (0.0, 1.0, 1.1, 2.0, 3.0, 5.0, 6.0, 100.0)]
    assert found == [1, 1, 2, 2, 4, 6, 6, 6]


def test_parameters_are_work_too():
    parameters = int(FLOPS_PER_THREAD / FLOPS_PER_PARAMETER)
    assert [threads_for(0.0, count * parameters, 6) for count in (1, 2, 3, 100)] == [1, 2, 4, 6]
    assert threads_for(FLOPS_PER_THREAD, parameters, 6) == 2


def test_the_cost_of_a_call_does_not_fall_with_more_threads():
    """Two invented cores scaled to sixteen: small operations take as long with sixteen threads as with two."""
    here = calibration(law=Law(fixed_s=1e-4))
    source = Device("two cores", "cpu", Peak(float32=1e11), memory_bandwidth=2e10, cores=2)
    target = replace(source, name="sixteen cores", peak=Peak(float32=8e11), memory_bandwidth=1.6e11, cores=16)
    two, sixteen = (
        {trial.sizes: trial.seconds for trial in found.trials if trial.family == "add"}
        for found in scaled(here, source, target).sets
        if found.threads in (2, 16)
    )
    assert sixteen[min(two)] == pytest.approx(two[min(two)], rel=0.02)
    assert sixteen[max(two)] < 0.5 * two[max(two)]


def test_one_core_does_not_reach_the_whole_bandwidth():
    cpu = Device("sixteen cores", "cpu", memory_bandwidth=1.6e11, cores=16)
    found = [_reached(cpu, threads) for threads in (1, 4, 8, 16)]
    assert found == [CORE_BANDWIDTH, 4 * CORE_BANDWIDTH, 1.6e11, 1.6e11]
