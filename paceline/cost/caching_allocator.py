"""A model of PyTorch's CUDA caching allocator: which memory it reserves for a sequence of allocations and frees.

It follows `c10/cuda/CUDACachingAllocator.cpp` with its default settings. Sizes are rounded up to 512 bytes. Blocks of
up to 1 MiB come from segments of 2 MiB; larger ones from segments of 20 MiB, or of their own size from 10 MiB on. The
smallest free block that fits is taken, and split if enough is left. Memory freed on one stream is not reused on
another, and what a CUDA graph was captured with stays reserved in a pool of its own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass

MIN_BLOCK = 512
SMALL_SIZE = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
MIN_LARGE_ALLOCATION = 10 << 20
ROUND_LARGE = 2 << 20

Place = tuple[int, int, bool]
"""The pool (0 or that of a graph), the stream, and whether it holds small blocks."""


@dataclass(eq=False)
class MemoryBlock:
    place: Place
    address: int
    size: int
    is_free: bool = False
    before: MemoryBlock | None = None
    """The neighbours in its segment."""
    after: MemoryBlock | None = None


class CachingAllocator:
    def __init__(self) -> None:
        self.reserved_bytes = 0
        self.peak_bytes = 0
        """The most that was reserved at a time."""
        self._free: dict[Place, list[tuple[int, int]]] = defaultdict(list)
        self._blocks: dict[int, MemoryBlock] = {}
        self._next_address = 0

    def allocate(self, size_bytes: int, stream: int = 0, pool: int = 0) -> MemoryBlock:
        size = max(MIN_BLOCK, -(-size_bytes // MIN_BLOCK) * MIN_BLOCK)
        place = pool, stream, size <= SMALL_SIZE
        free = self._free[place]
        position = bisect_left(free, (size, -1))
        if position < len(free):
            block = self._blocks[free.pop(position)[1]]
            block.is_free = False
        else:
            block = self._segment(place, _segment_size(size))
        rest = block.size - size
        if rest >= MIN_BLOCK if place[2] else rest > SMALL_SIZE:
            self._split(block, size)
        return block

    def free(self, block: MemoryBlock) -> None:
        block.is_free = True
        for other in (block.before, block.after):
            if other is not None and other.is_free:
                self._take(other)
                first, second = (other, block) if other is block.before else (block, other)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                self._blocks.pop(second.address)
                block = first
        insort(self._free[block.place], (block.size, block.address))

    def empty_cache(self) -> None:
        """Gives back segments that are free as a whole, outside the pools of graphs."""
        for place, free in self._free.items():
            if place[0]:
                continue
            for size, address in list(free):
                block = self._blocks[address]
                if block.before is None and block.after is None:
                    free.remove((size, address))
                    del self._blocks[address]
                    self.reserved_bytes -= size

    def _segment(self, place: Place, size: int) -> MemoryBlock:
        block = MemoryBlock(place, self._next_address, size)
        self._blocks[block.address] = block
        self._next_address += size
        self.reserved_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.reserved_bytes)
        return block

    def _split(self, block: MemoryBlock, size: int) -> None:
        rest = MemoryBlock(block.place, block.address + size, block.size - size, True, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._blocks[rest.address] = rest
        insort(self._free[rest.place], (rest.size, rest.address))

    def _take(self, block: MemoryBlock) -> None:
        free = self._free[block.place]
        free.pop(bisect_left(free, (block.size, block.address)))


def _segment_size(size: int) -> int:
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < MIN_LARGE_ALLOCATION:
        return LARGE_SEGMENT
    return -(-size // ROUND_LARGE) * ROUND_LARGE
