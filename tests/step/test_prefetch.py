"""Fetching ahead: the same batches in the same order, errors where they are used, and no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from paceline.step.phase import Batch
from paceline.step.prefetch import Prefetcher

CPU = torch.device("cpu")


def numbered(count: int, seen: list[int] | None = None) -> Iterator[Batch]:
    for number in range(count):
        if seen is not None:
            seen.append(number)
        yield torch.tensor([number]), torch.tensor([-number])


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "paceline-prefetch"]


@pytest.mark.parametrize("count", [0, 1, 3, 20])
def test_batches_come_in_order(count):
    with Prefetcher(numbered(count), CPU, 3) as ahead:
        assert [(int(x), int(y)) for x, y in ahead] == [(n, -n) for n in range(count)]
    assert not threads()


def test_no_more_than_the_depth_is_fetched_ahead():
    seen: list[int] = []
    with Prefetcher(numbered(100, seen), CPU, 2) as ahead:
        next(iter(ahead))
        time.sleep(0.05)
        assert len(seen) <= 1 + 2 + 1  # the one taken, those that wait, the one in hand
    assert not threads()


def test_an_error_is_raised_where_the_batches_are_used():
    def failing() -> Iterator[Batch]:
        yield from numbered(2)
        raise OSError("the disk is gone")

    got = []
    with pytest.raises(OSError, match="the disk is gone"), Prefetcher(failing(), CPU, 4) as ahead:
        for x, _ in ahead:
            got.append(int(x))
    assert got == [0, 1], "what came before the error is handed over first"
    assert not threads()


@pytest.mark.parametrize("depth", [1, 4])
def test_leaving_early_ends_the_thread(depth):
    began = time.monotonic()
    with Prefetcher(numbered(1_000_000), CPU, depth) as ahead:
        next(iter(ahead))
    assert not threads() and time.monotonic() - began < 5


def test_leaving_by_an_error_ends_the_thread():
    with pytest.raises(ZeroDivisionError), Prefetcher(numbered(1000), CPU, 2) as ahead:
        for _ in ahead:
            raise ZeroDivisionError
    assert not threads()
