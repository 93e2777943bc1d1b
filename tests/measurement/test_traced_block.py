"""Gaps are corrected by the slowdown of the host under tracing, measured on the other blocks."""

from __future__ import annotations

import pytest

from paceline.measurement.averages import interquartile_mean
from paceline.measurement.kernels import Kernel
from paceline.measurement.slowdown import HostTimes, slowdown
from paceline.measurement.traced_block import MIN_COMPARISONS, KernelTimes, TracedBlock, samples_of

FORWARD, LATE = ("forward", "a"), ("idle", "host launching")
LAUNCHES = 10


def block(first: int, launch: int, alone: float | None, marked: bool = False) -> TracedBlock:
    """Two iterations of a host that launches a kernel of 4 every `launch`; alone, it would have taken `alone`."""
    kernels = [Kernel("k", launch * n, launch * n + 1, launch * n + 5) for n in range(2 * LAUNCHES)]
    numbers = [n // LAUNCHES for n in range(2 * LAUNCHES)]
    return TracedBlock(
        first, 1, {1: {FORWARD: 4e-9 * LAUNCHES}}, None if marked else KernelTimes(kernels, numbers), [],
        host_s=launch * LAUNCHES * 1e-9, launches=LAUNCHES, after_s=alone and alone * LAUNCHES * 1e-9,
    )  # fmt: skip


def test_the_interquartile_mean_is_the_mean_of_the_middle_half():
    assert interquartile_mean([1.0]) == 1.0 and interquartile_mean([1.0, 2.0, 90.0]) == 2.0
    assert interquartile_mean([0.0, 2.0, 3.0, 99.0]) == 2.5
    assert interquartile_mean([-50.0, 0.0, 1.0, 2.0, 3.0, 4.0, 90.0, 99.0]) == 2.5


def test_the_slowdown_comes_from_neighbours_and_is_never_a_speedup():
    assert slowdown([HostTimes(13.0, 10.0), HostTimes(26.0, 20.0)]) == pytest.approx(1.3)
    assert slowdown([HostTimes(9.0, 10.0)]) == slowdown([]) == 1.0


def test_gaps_are_those_without_tracing():
    blocks = [block(10 * n, 13, 10) for n in range(MIN_COMPARISONS + 1)]
    for sample in samples_of(blocks, []):
        assert sample.spans_s[LATE] == pytest.approx(6e-9 * LAUNCHES)
        assert sample.wall_s == pytest.approx(10e-9 * LAUNCHES)


def test_a_block_is_not_corrected_by_its_own_comparison():
    blocks = [block(10 * n, 13, 10) for n in range(MIN_COMPARISONS)] + [block(90, 26, 10)]
    assert samples_of(blocks, [])[-1].wall_s == pytest.approx(20e-9 * LAUNCHES)


@pytest.mark.parametrize("alone", [None, 10])
def test_comparisons_made_beforehand_are_used_while_there_are_too_few_others(alone):
    blocks = [block(10 * n, 13, alone) for n in range(MIN_COMPARISONS)]
    assert samples_of(blocks, [])[0].wall_s == pytest.approx(13e-9 * LAUNCHES)
    assert samples_of(blocks, [HostTimes(13.0, 10.0)])[0].wall_s == pytest.approx(10e-9 * LAUNCHES)


def test_a_few_comparisons_do_not_count_where_the_host_mostly_waits_for_the_device():
    blocks = [block(10 * n, 13, 10 if n < MIN_COMPARISONS + 1 else None) for n in range(20)]
    assert samples_of(blocks, [])[0].wall_s == pytest.approx(13e-9 * LAUNCHES)


def test_a_block_with_marks_has_the_gaps_of_the_previous_block():
    samples = samples_of([block(0, 10, None), block(20, 99, None, marked=True)], [])
    assert [sample.spans_s[LATE] for sample in samples] == [pytest.approx(6e-9 * LAUNCHES)] * 2
