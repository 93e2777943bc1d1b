"""A measurement on a simulated GPU, whose true times are known."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch
from torch import nn

from paceline.measurement.gpu_session import GpuSession
from paceline.measurement.kernel_order import KernelOrder
from paceline.measurement.kernels import Kernel
from paceline.measurement.rates import DeviceRates
from paceline.measurement.summary import summarise
from tests.measurement.fake_gpu import FakeGpu

LAUNCHES = 400
HOST_BOUND = (20_000, [8_000] * LAUNCHES)
DEVICE_BOUND = (5_000, [20_000] * LAUNCHES)
MIXED = (18_000, [4_000, 30_000] * (LAUNCHES // 2))


def run(gpu: FakeGpu, session: GpuSession, iterations: int, moods=None) -> GpuSession:
    session.begin()
    while session.number < iterations:
        if moods is not None:
            gpu.mood = next(moods)
        gpu.iteration(session)
        session.end_iteration()
    return session


def session_on(gpu: FakeGpu, monkeypatch, every: int = 14) -> GpuSession:
    gpu.install(monkeypatch)
    return GpuSession(nn.Identity(), torch.device("cpu"), every=every)


def measurement(session: GpuSession):
    return summarise(
        session, DeviceRates(1.0, 1.0), name="", batch=1, device="cuda:0", device_name="", step="plain",
        peak_memory_bytes=0, conditions={},
    )  # fmt: skip


def unsteady(seed: int):
    """A host like one observed: its speed varies by 10 % and changes every two or three iterations."""
    chance, mood = random.Random(seed), 0.0
    while True:
        mood = 0.6 * mood + 0.8 * chance.gauss(0.0, 0.1)
        yield max(0.7, 1.0 + mood)


@pytest.mark.parametrize(("launch_ns", "kernels_ns"), [HOST_BOUND, DEVICE_BOUND, MIXED])
def test_without_noise_the_parts_add_up_to_the_untouched_iteration(launch_ns, kernels_ns, monkeypatch):
    gpu = FakeGpu(launch_ns, kernels_ns, traced_ns=6_000)
    m = measurement(run(gpu, session_on(gpu, monkeypatch), 1_000))
    assert m.iteration_s.median_s == pytest.approx(max(LAUNCHES * launch_ns, sum(kernels_ns)) * 1e-9, rel=0.01)
    assert m.accounted == pytest.approx(1.0, abs=0.01)
    busy_s = sum(layer.forward_s.median_s + layer.backward_s.median_s for layer in m.layers)
    assert busy_s == pytest.approx(sum(kernels_ns) * 1e-9, rel=0.01)
    assert m.sampled >= 20 and m.sampled <= 0.05 * m.iterations


def test_a_noisy_host_widens_the_spread_without_bias(monkeypatch):
    found = []
    for seed in range(9):
        with monkeypatch.context() as patched:
            gpu = FakeGpu(40_000, [16_000] * 200, traced_ns=12_000)
            found.append(measurement(run(gpu, session_on(gpu, patched), 1_000, unsteady(seed))).accounted)
    assert sorted(found)[4] == pytest.approx(1.0, abs=0.01)
    assert min(found) > 0.95 and max(found) < 1.05


@pytest.mark.parametrize("longer", [1.1, 1.3])
def test_kernels_slowed_by_tracing_are_not_corrected(longer, monkeypatch):
    gpu = FakeGpu(*DEVICE_BOUND, traced_ns=6_000)
    gpu.traced_longer = longer
    m = measurement(run(gpu, session_on(gpu, monkeypatch), 500))
    assert m.accounted == pytest.approx(longer, rel=0.01) and m.parts_s["unattributed"] < 0.0


@pytest.mark.parametrize("longer", [3.5, 4.0])
def test_kernels_slowed_by_tracing_are_not_corrected_when_the_host_is_the_bottleneck(longer, monkeypatch):
    gpu = FakeGpu(*HOST_BOUND, traced_ns=6_000)
    gpu.traced_longer = longer
    m = measurement(run(gpu, session_on(gpu, monkeypatch), 500))
    assert m.accounted == pytest.approx(longer * 8 / 20, rel=0.02)


def third(kernels: list[Kernel]) -> set[int]:
    return set(range(0, len(kernels), 3))


def dropped(kernels: list[Kernel]) -> list[Kernel]:
    return [kernel for number, kernel in enumerate(kernels) if number not in third(kernels)]


def doubled(kernels: list[Kernel]) -> list[Kernel]:
    """Each again, right after it ended."""
    found = []
    for number, kernel in enumerate(kernels):
        found.append(kernel)
        if number in third(kernels):
            found.append(kernel._replace(start=kernel.end, end=2 * kernel.end - kernel.start))
    return found


def slowed(kernels: list[Kernel]) -> list[Kernel]:
    return [
        kernel._replace(end=2 * kernel.end - kernel.start) if number in third(kernels) else kernel
        for number, kernel in enumerate(kernels)
    ]


@pytest.mark.parametrize("fault", [dropped, doubled, slowed])
@pytest.mark.parametrize("kind", [HOST_BOUND, DEVICE_BOUND, MIXED], ids=["host-bound", "device-bound", "mixed"])
def test_a_fault_of_the_traces_is_noticed(kind, fault, monkeypatch):
    """Where the host is the bottleneck the parts still add up: idle time grows where kernels are missing."""
    gpu = FakeGpu(*kind, traced_ns=6_000)
    gpu.fault = fault
    m = measurement(run(gpu, session_on(gpu, monkeypatch), 500))
    named = any(warning.startswith("traces and events disagree") for warning in m.warnings)
    assert named or abs(m.accounted - 1.0) > 0.1
    assert named or kind is not HOST_BOUND


@pytest.mark.parametrize("kind", [HOST_BOUND, DEVICE_BOUND, MIXED], ids=["host-bound", "device-bound", "mixed"])
def test_without_a_fault_traces_and_events_agree(kind, monkeypatch):
    gpu = FakeGpu(*kind, traced_ns=6_000)
    m = measurement(run(gpu, session_on(gpu, monkeypatch), 500))
    assert not [warning for warning in m.warnings if "disagree" in warning]


def test_an_empty_trace_is_ignored(monkeypatch):
    gpu = FakeGpu(*HOST_BOUND, traced_ns=6_000)
    session = session_on(gpu, monkeypatch)
    run(gpu, session, 300)
    blocks, order = len(session._blocks), session.order
    gpu.loses_traces = True
    run(gpu, session, 600)
    assert len(session._blocks) == blocks and session.order is order
    gpu.loses_traces = False
    assert measurement(run(gpu, session, 1_000)).accounted == pytest.approx(1.0, abs=0.01)


def test_a_block_with_a_pause_in_it_does_not_count(monkeypatch):
    gpu = FakeGpu(*HOST_BOUND, traced_ns=6_000)
    session = session_on(gpu, monkeypatch)
    session.begin()
    for iteration in range(1_000):
        gpu.iteration(session)
        session.end_iteration()
        if iteration % 43 == 42:
            session.close()
            gpu.now_ns += 3_000_000_000
            session.begin()
    session.finish()
    assert max(seconds for _, seconds, sampled in session.walls if not sampled) < 0.01


def test_captured_windows_that_fill_an_epoch_are_sampled(monkeypatch):
    """A block is a whole epoch, so that whatever comes between two falls on the beginning of a block."""
    gpu, stride = FakeGpu(20_000, [8_000, 4_000]), 50
    gpu.install(monkeypatch)
    order = KernelOrder({"kernel 0": [("forward", "a")], "kernel 1": [("backward", "a")]})
    session = GpuSession(nn.Identity(), torch.device("cpu"), stride=stride, order=order, captured=True)
    session.plan(1_200)
    for _ in range(12):
        session.begin()
        for _ in range(2):
            gpu.window(session, stride)
            session.end_iteration(stride)
        session.close()
    m = measurement(session)
    assert m.sampled >= 20 and m.accounted == pytest.approx(1.0, abs=0.01)


def test_the_blocks_that_are_kept_are_few_and_from_all_of_the_run(monkeypatch):
    gpu = FakeGpu(1_000_000, [8_000] * 2, traced_ns=6_000)
    monkeypatch.setattr("paceline.measurement.gpu_session.MAX_OVERHEAD", 1e9)
    monkeypatch.setattr("paceline.measurement.gpu_session.KEEP_BLOCKS", 10)
    session = session_on(gpu, monkeypatch, every=3)
    run(gpu, session, 5_000)
    assert 5 <= len(session._blocks) <= 10
    places = [block.first for block in session._blocks]
    assert places[0] < 500 and places[-1] > 4_000
    gaps = [after - before for before, after in pairwise(places)]
    assert max(gaps) < 2 * min(gaps)


def test_short_iterations_come_in_longer_blocks_and_are_sampled_soon(monkeypatch):
    gpu = FakeGpu(20_000, [8_000] * 15, traced_ns=6_000)
    session = session_on(gpu, monkeypatch, every=10)
    session.begin()
    for _ in range(800):
        gpu.iteration(session)
        session.end_iteration()
    m = measurement(session)
    assert session.lengths.default == 50 and m.sampled >= 20
    assert m.accounted == pytest.approx(1.0, abs=0.02)


def test_a_plan_is_made_again_when_blocks_turn_out_to_be_long(monkeypatch):
    gpu = FakeGpu(20_000, [8_000] * 15, traced_ns=6_000)
    session = session_on(gpu, monkeypatch)
    session.plan(5_000)
    before = session.every
    run(gpu, session, 1_000)
    assert session.every < before and len(session._blocks) >= 2


def test_with_enough_blocks_sampling_is_reduced(monkeypatch):
    gpu = FakeGpu(*HOST_BOUND, traced_ns=6_000)
    session = session_on(gpu, monkeypatch, every=5)
    run(gpu, session, 900)
    assert len(session._blocks) == session.min_blocks and session.every > 100


def test_the_next_sample_comes_in_the_middle_of_a_cycle(monkeypatch):
    gpu = FakeGpu(*HOST_BOUND, traced_ns=6_000)
    session = session_on(gpu, monkeypatch)
    run(gpu, session, 333)
    for _ in range(3):
        session.sample_every(5)
        session.begin()
        before = gpu.traces
        for _ in range(session.lengths.cycle(5)):
            gpu.iteration(session)
            session.end_iteration()
        assert gpu.traces == before + 1
