"""The order of samples: disjoint, complete, shuffled, and the same whenever it is asked for again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import WorkloadError
from paceline.step.order import WINDOW_CHUNKS, Order


@st.composite
def sizes(draw) -> tuple[int, int, int]:
    """Samples, batch and workers that fit together."""
    samples = draw(st.integers(1, 200))
    batch = draw(st.integers(1, samples))
    workers = draw(st.integers(1, -(-samples // batch)))
    return samples, batch, workers


@given(sizes(), st.integers(0, 2**63 - 1), st.integers(0, 50))
def test_workers_share_an_epoch_without_overlap_and_leave_nothing_out(size, seed, epoch):
    samples, batch, workers = size
    orders = [Order(samples, batch, seed, worker, workers) for worker in range(workers)]
    taken = torch.cat([indices for order in orders for indices in order.epoch(epoch)])
    assert sorted(taken.tolist()) == list(range(samples))


@given(sizes(), st.integers(0, 2**63 - 1), st.integers(0, 50), st.data())
def test_an_epoch_is_a_function_of_seed_epoch_and_worker(size, seed, epoch, data):
    samples, batch, workers = size
    worker = data.draw(st.integers(0, workers - 1))
    once = Order(samples, batch, seed, worker, workers).epoch(epoch)
    torch.manual_seed(data.draw(st.integers(0, 9)))  # the program's own random numbers have no part in it
    again = Order(samples, batch, seed, worker, workers).epoch(epoch)
    assert len(once) == len(again) and all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


@given(sizes(), st.integers(0, 3))
def test_only_the_last_batch_of_all_is_smaller(size, epoch):
    samples, batch, workers = size
    for worker in range(workers):
        order = Order(samples, batch, 0, worker, workers)
        lengths = [len(indices) for indices in order.epoch(epoch)]
        assert len(lengths) == order.batches >= 1
        assert lengths[: order.full_batches] == [batch] * order.full_batches
        last = (order.all_batches - 1) % workers == worker and samples % batch > 0
        assert lengths[order.full_batches :] == ([samples % batch] if last else [])


@given(sizes())
def test_one_worker_sees_the_batches_that_several_share(size):
    samples, batch, workers = size
    alone = Order(samples, batch, 5).epoch(2)
    for worker in range(workers):
        shared = Order(samples, batch, 5, worker, workers).epoch(2)
        assert all(torch.equal(a, b) for a, b in zip(shared, alone[worker::workers], strict=True))


def test_epochs_and_seeds_are_shuffled_differently():
    first, second = Order(1000, 1000, 1), Order(1000, 1000, 2)
    orders = [first.epoch(0)[0], first.epoch(1)[0], second.epoch(0)[0], second.epoch(1)[0], torch.arange(1000)]
    for number, order in enumerate(orders):
        for other in orders[:number]:
            assert (order == other).float().mean() < 0.02


def test_without_shuffling_samples_come_as_they_are():
    assert torch.equal(torch.cat(Order(10, 4, 3, shuffle=False).epoch(7)), torch.arange(10))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((5, 6, 0), "batch 6 is larger than the data: 5 samples"),
        ((5, 2, 0, 3, 3), "worker 3 is not one of 3"),
        ((5, 2, 0, -1, 3), "worker -1 is not one of 3"),
        ((5, 2, 0, 3, 4), "4 workers for 5 samples in batches of 2"),
    ],
)
def test_what_cannot_be_shared_is_refused(arguments, expected):
    with pytest.raises(WorkloadError, match=expected):
        Order(*arguments)


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 5), st.integers(0, 3))
def test_with_chunks_every_window_holds_a_few_whole_chunks(samples, chunk, seed, epoch):
    order = Order(samples, 1, seed, chunk=chunk)
    rows = order.permutation(epoch)
    assert sorted(rows.tolist()) == list(range(samples))
    assert torch.equal(rows, Order(samples, 1, seed, chunk=chunk).permutation(epoch))
    for window in rows.split(order.window):
        assert len(set((window // chunk).tolist())) <= WINDOW_CHUNKS + 1, "the last chunk may be short"


def test_chunks_are_shuffled_anew_in_every_epoch():
    order = Order(1000, 10, 0, chunk=10)
    assert not torch.equal(order.permutation(0), order.permutation(1))
    assert not torch.equal(order.permutation(0), Order(1000, 10, 1, chunk=10).permutation(0))
    assert order.permutation(0)[:40].sort().values.diff().max() > 1, "chunks from anywhere"
