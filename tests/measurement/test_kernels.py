"""What follows from a list of kernels, without a GPU: whose they are, what overlaps, and why the device idled."""

from __future__ import annotations

import pytest

from paceline.measurement.idleness import idle_s
from paceline.measurement.kernel_order import UNKNOWN, KernelOrder
from paceline.measurement.kernels import Kernel, alone_s, owners_by_launch
from paceline.measurement.tape import OUTSIDE, Tape

A, B, UPDATE = ("forward", "a"), ("backward", "a"), ("update", "")


def kernel(name: str, launched: int, start: int, end: int) -> Kernel:
    return Kernel(name, launched, start, end)


def tape(*marks: tuple[tuple[str, str], int]) -> Tape:
    made = Tape()
    made.marks = [("edge", owner, moment, moment) for owner, moment in marks]
    return made


def test_a_kernel_belongs_to_whose_time_its_launch_was():
    tapes = [tape((A, 0), (B, 100)), tape((A, 200), (B, 300))]
    kernels = [
        kernel("k", 10, 50, 60), kernel("k", 150, 160, 170), kernel("Memcpy HtoD", 205, 205, 206),
        kernel("k", 310, 400, 410), kernel("ncclAllReduce", 320, 400, 420),
    ]  # fmt: skip
    assert owners_by_launch(kernels, tapes) == [(0, A), (0, B), (1, ("copy", "")), (1, B), (1, ("communicate", ""))]


def test_of_kernels_that_overlap_the_first_counts_and_communication_only_where_it_is_alone():
    kernels = [
        kernel("nccl", 0, 0, 100),
        kernel("a", 0, 10, 40),
        kernel("b", 0, 30, 60),
        kernel("c", 0, 80, 90),
        kernel("nccl", 0, 110, 130),
    ]
    assert alone_s(kernels) == pytest.approx([x * 1e-9 for x in (40, 30, 20, 10, 20)])


def order() -> KernelOrder:
    once = [("gemm", A), ("add", A), ("gemm", B), ("sgd", UPDATE)]
    kernels = [kernel(name, i, i, i + 1) for i, (name, _) in enumerate(once * 2)]
    learnt = KernelOrder.learnt(kernels, [(i // 4, owner) for i, (_, owner) in enumerate(once * 2)])
    assert learnt is not None
    return learnt


def test_the_order_is_learnt_once_and_tells_owners_from_then_on():
    assert order().assign([kernel(n, 0, 0, 1) for n in ("gemm", "add", "gemm", "sgd")]) == [A, A, B, UPDATE]


@pytest.mark.parametrize("names", [("gemm", "add", "sgd"), ("gemm", "add", "gemm", "gemm", "sgd"), ("other",), ()])
def test_other_kernels_are_not_guessed_at(names):
    assert order().assign([kernel(name, 0, 0, 1) for name in names]) is None


def test_iterations_that_are_never_alike_teach_nothing():
    kernels = [kernel("a", 0, 0, 1), kernel("b", 1, 1, 2)]
    assert KernelOrder.learnt(kernels, [(0, A), (1, A)]) is None


def test_a_captured_window_repeats_the_order_and_what_it_adds_comes_last():
    step = ["gemm", "add", "gemm", "sgd", "add"]  # capturing adds a copy of the results
    graph = [kernel(name, 50, 60 + i, 61 + i) for i, name in enumerate(step * 3)]
    kernels = [kernel("gather", 10, 20, 30), *graph, kernel("rank", 90, 100, 110)]
    beside = [("load", ""), *[OUTSIDE] * len(graph), ("forward", "(loss and accuracy)")]
    found = order().assign_captured(kernels, beside, 3)
    assert found[0] == (0, ("load", "")) and found[-1] == (2, ("forward", "(loss and accuracy)"))
    expected = [A, A, B, UPDATE, ("forward", OUTSIDE)]
    assert found[1:-1] == [(number, owner) for number in range(3) for owner in expected]


def test_kernels_that_capturing_exchanged_are_not_told_apart():
    graph = [kernel(name, 50, 60 + i, 61 + i) for i, name in enumerate(["gemm", "add", "sgd"] * 2)]
    found = order().assign_captured(graph, [UPDATE] * 6, 2)
    assert [owner for _, owner in found] == [UNKNOWN, A, UPDATE] * 2


def test_a_gap_before_a_kernel_that_was_launched_in_time_is_the_devices_own():
    kernels = [kernel("a", 0, 10, 20), kernel("b", 1, 22, 30), kernel("Memcpy DtoD", 2, 31, 40)]
    found = idle_s(kernels, [0, 0, 1], [], 0.0)
    assert found == {
        0: {("idle", "between kernels"): pytest.approx(2e-9)},
        1: {("idle", "copying"): pytest.approx(1e-9)},
    }


def test_a_gap_before_a_late_launch_is_the_hosts_or_the_datas():
    kernels = [kernel("a", 0, 10, 20), kernel("b", 50, 55, 60), kernel("c", 95, 100, 110)]
    found = idle_s(kernels, [0, 0, 0], [(62, 94)], 0.0)
    assert found[0] == {
        ("idle", "host launching"): pytest.approx(35e-9),
        ("idle", "waiting for data"): pytest.approx(40e-9),
    }


def test_what_tracing_adds_to_launches_is_taken_out_of_the_gaps_between_them():
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
