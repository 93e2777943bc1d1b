"""The model of the CUDA caching allocator behaves as `CUDACachingAllocator.cpp` documents."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from paceline.cost.caching_allocator import CachingAllocator

KB, MB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("size", "reserved"),
    [(1, 2 * MB), (MB, 2 * MB), (MB + 1, 20 * MB), (10 * MB - 512, 20 * MB), (10 * MB, 10 * MB), (33 * MB, 34 * MB)],
)
def test_a_first_allocation_reserves_a_segment(size, reserved):
    allocator = CachingAllocator()
    allocator.allocate(size)
    assert allocator.reserved_bytes == reserved


def test_small_blocks_are_rounded_to_512_bytes_and_share_a_segment():
    allocator = CachingAllocator()
    first, second = allocator.allocate(1), allocator.allocate(513)
    assert (first.size, second.size, second.address - first.address) == (512, 1024, 512)
    for _ in range(2 * MB // 512 - 3):
        allocator.allocate(512)
    assert allocator.reserved_bytes == 2 * MB
    allocator.allocate(512)
    assert allocator.reserved_bytes == 4 * MB


def test_a_large_block_is_split_only_if_more_than_a_megabyte_is_left():
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(20 * MB))
    assert allocator.allocate(19 * MB).size == 20 * MB
    other = CachingAllocator()
    other.free(other.allocate(20 * MB))
    assert other.allocate(18 * MB).size == 18 * MB


def test_the_smallest_free_block_that_fits_is_taken():
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size * MB) for size in (40, 24, 30)]
    for block in blocks:
        allocator.free(block)
    assert allocator.allocate(23 * MB) is blocks[1]
    assert allocator.reserved_bytes == 94 * MB


def test_free_neighbours_are_merged():
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MB) for _ in range(4)]
    assert allocator.reserved_bytes == 20 * MB
    for block in (blocks[0], blocks[2], blocks[1], blocks[3]):
        allocator.free(block)
    assert allocator.allocate(20 * MB).size == 20 * MB and allocator.reserved_bytes == 20 * MB


def test_fragments_do_not_serve_a_larger_block():
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MB) for _ in range(4)]
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    allocator.allocate(10 * MB)
    assert allocator.reserved_bytes == 30 * MB


def test_memory_of_one_stream_is_not_reused_on_another_nor_in_a_graphs_pool():
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(30 * MB))
    allocator.allocate(30 * MB, stream=1)
    assert allocator.reserved_bytes == 60 * MB
    allocator.allocate(30 * MB, pool=1)
    assert allocator.reserved_bytes == 90 * MB


def test_emptying_the_cache_leaves_split_segments_and_the_pools_of_graphs():
    allocator = CachingAllocator()
    whole, graph = allocator.allocate(30 * MB), allocator.allocate(40 * MB, pool=1)
    kept, rest = allocator.allocate(2 * MB), allocator.allocate(3 * MB)
    for block in (whole, graph, rest):
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 40 * MB + 20 * MB
    assert allocator.peak_bytes == 90 * MB
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 40 * MB


def test_blocks_never_overlap_and_all_can_be_given_back():
    allocator, rng = CachingAllocator(), random.Random(0)
    used = []
    for _ in range(3000):
        if used and rng.random() < 0.48:
            allocator.free(used.pop(rng.randrange(len(used))))
        else:
            used.append(allocator.allocate(round(2 ** rng.uniform(0, 26)), stream=rng.randrange(2)))
    ends = sorted((block.address, block.address + block.size) for block in used)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    for block in used:
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0
