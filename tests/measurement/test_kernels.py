"""Evaluating a list of kernels, without a GPU: span keys, overlap, and causes of idle time."""

from __future__ import annotations

import pytest

from paceline.measurement.idle_time import idle_s
from paceline.measurement.kernel_order import UNKNOWN, KernelOrder
from paceline.measurement.kernels import Kernel, exposed_s, keys_by_launch
from paceline.measurement.mark_log import OUTSIDE, MarkLog

A, B, UPDATE = ("forward", "a"), ("backward", "a"), ("update", "")


def kernel(name: str, launched: int, start: int, end: int) -> Kernel:
    return Kernel(name, launched, start, end)


def log(*marks: tuple[tuple[str, str], int]) -> MarkLog:
    made = MarkLog()
    made.marks = [("edge", key, moment, moment) for key, moment in marks]
    return made


def test_a_kernel_has_the_key_that_was_current_at_its_launch():
    logs = [log((A, 0), (B, 100)), log((A, 200), (B, 300))]
    kernels = [
        kernel("k", 10, 50, 60), kernel("k", 150, 160, 170), kernel("Memcpy HtoD", 205, 205, 206),
        kernel("k", 310, 400, 410), kernel("ncclAllReduce", 320, 400, 420),
    ]  # fmt: skip
    assert keys_by_launch(kernels, logs) == [(0, A), (0, B), (1, ("copy", "")), (1, B), (1, ("communicate", ""))]


def test_of_overlapping_kernels_the_first_counts_and_communication_only_where_exposed():
    kernels = [
        kernel("nccl", 0, 0, 100),
        kernel("a", 0, 10, 40),
        kernel("b", 0, 30, 60),
        kernel("c", 0, 80, 90),
        kernel("nccl", 0, 110, 130),
    ]
    assert exposed_s(kernels) == pytest.approx([x * 1e-9 for x in (40, 30, 20, 10, 20)])


def order() -> KernelOrder:
    once = [("gemm", A), ("add", A), ("gemm", B), ("sgd", UPDATE)]
    kernels = [kernel(name, i, i, i + 1) for i, (name, _) in enumerate(once * 2)]
    learned = KernelOrder.learned(kernels, [(i // 4, key) for i, (_, key) in enumerate(once * 2)])
    assert learned is not None
    return learned


def test_the_kernel_order_is_learned_once_and_gives_keys_from_then_on():
    assert order().assign([kernel(n, 0, 0, 1) for n in ("gemm", "add", "gemm", "sgd")]) == [A, A, B, UPDATE]


@pytest.mark.parametrize("names", [("gemm", "add", "sgd"), ("gemm", "add", "gemm", "gemm", "sgd"), ("loop",), ()])
def test_unknown_kernels_are_not_attributed(names):
    assert order().assign([kernel(name, 0, 0, 1) for name in names]) is None


def test_no_order_is_learned_from_iterations_that_all_differ():
    kernels = [kernel("a", 0, 0, 1), kernel("b", 1, 1, 2)]
    assert KernelOrder.learned(kernels, [(0, A), (1, A)]) is None


def test_a_captured_window_repeats_the_order_and_added_kernels_come_last():
    step = ["gemm", "add", "gemm", "sgd", "add"]  # capturing adds a copy of the results
    graph = [kernel(name, 50, 60 + i, 61 + i) for i, name in enumerate(step * 3)]
    kernels = [kernel("gather", 10, 20, 30), *graph, kernel("rank", 90, 100, 110)]
    beside = [("load", ""), *[OUTSIDE] * len(graph), ("forward", "(loss and accuracy)")]
    found = order().assign_captured(kernels, beside, 3)
    assert found[0] == (0, ("load", "")) and found[-1] == (2, ("forward", "(loss and accuracy)"))
    expected = [A, A, B, UPDATE, ("forward", OUTSIDE)]
    assert found[1:-1] == [(number, key) for number in range(3) for key in expected]


def test_kernels_replaced_by_capturing_are_unknown():
    graph = [kernel(name, 50, 60 + i, 61 + i) for i, name in enumerate(["gemm", "add", "sgd"] * 2)]
    found = order().assign_captured(graph, [UPDATE] * 6, 2)
    assert [key for _, key in found] == [UNKNOWN, A, UPDATE] * 2


def test_a_gap_before_a_queued_kernel_is_between_kernels():
    kernels = [kernel("a", 0, 10, 20), kernel("b", 1, 22, 30), kernel("Memcpy DtoD", 2, 31, 40)]
    found = idle_s(kernels, [0, 0, 1], [], 0.0)
    assert found == {
        0: {("idle", "between kernels"): pytest.approx(2e-9)},
        1: {("idle", "copying"): pytest.approx(1e-9)},
    }


def test_a_gap_before_a_late_launch_is_caused_by_the_host_or_by_loading():
    kernels = [kernel("a", 0, 10, 20), kernel("b", 50, 55, 60), kernel("c", 95, 100, 110)]
    found = idle_s(kernels, [0, 0, 0], [(62, 94)], 0.0)
    assert found[0] == {
        ("idle", "host launching"): pytest.approx(35e-9),
        ("idle", "waiting for data"): pytest.approx(40e-9),
    }


def test_the_cost_of_tracing_launches_is_removed_from_gaps():
    """A host that launches every 10 takes 13 when traced; kernels take 4, so the untraced gaps are 6."""
    cost, launches = 3, 50
    kernels = [kernel("k", 13 * n, 13 * n + 1, 13 * n + 5) for n in range(launches)]
    found = idle_s(kernels, [0] * launches, [], cost * 1e-9)
    assert found[0]["idle", "host launching"] == pytest.approx(6e-9 * (launches - 1))
    uncorrected = idle_s(kernels, [0] * launches, [], 0.0)
    assert uncorrected[0]["idle", "host launching"] == pytest.approx(9e-9 * (launches - 1))


def test_a_busy_device_has_no_gaps_however_slow_the_launches():
    kernels = [kernel("k", 13 * n, 20 * n + 30, 20 * n + 50) for n in range(20)]
    assert idle_s(kernels, [0] * 20, [], 3e-9) == {}


def test_a_launch_shortly_before_the_device_runs_dry_is_late_too():
    """Launches take 9 to reach the device. One that comes 4 before the end is 5 late, of which the device needs 1."""
    kernels = [
        kernel("a", 0, 9, 20), kernel("b", 1, 21, 30), kernel("c", 2, 31, 40), kernel("d", 50, 59, 100),
        kernel("e", 96, 105, 110), kernel("f", 119, 128, 200), kernel("g", 150, 201, 210),
    ]  # fmt: skip
    found = idle_s(kernels, [0] * 7, [], 0.0)
    assert found[0] == {
        ("idle", "between kernels"): pytest.approx(3e-9),
        ("idle", "host launching"): pytest.approx((19 + 5 + 18) * 1e-9),
    }
    without = idle_s(kernels, [0] * 7, [], 1e-9)
    assert without[0]["idle", "host launching"] == pytest.approx((16 + 4 + 17) * 1e-9)
