"""Buckets of a flat gradient, which the members of a group exchange while the backward pass computes the rest of it.

The backward pass finishes the last layers first, so buckets are cut from the end, at the boundaries of parameters: a
small first one and then 25 MiB each, as in DistributedDataParallel (Li et al., "PyTorch Distributed", VLDB 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.step.phase import announces_gradients
from paceline.strategy.strategy import Strategy

if TYPE_CHECKING:
    from paceline.strategy.phase_gradient import PhaseGradient

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
SINGLE_BELOW_BYTES = 4 << 20
"""A smaller gradient is exchanged at once: it takes less time than starting several exchanges."""

Bucket = tuple[int, int]
"""Where it begins and ends in the flat gradient."""
StartBucket = Callable[[int, int], None]
"""Called when a bucket is complete, in the order of the buckets: the gradient's samples, and the bucket's number."""


def bucket_bounds(sizes: Sequence[int], number_bytes: int) -> tuple[Bucket, ...]:
    """The buckets of parameters of these sizes, from the last to the first; none if a single one would do."""
    first = last = sum(sizes)
    if last * number_bytes < SINGLE_BELOW_BYTES:
        return ()
    found: list[Bucket] = []
    for size in reversed(sizes):
        first -= size
        enough = BUCKET_BYTES if found else FIRST_BUCKET_BYTES
        if first < last and (first == 0 or (last - first) * number_bytes >= enough):
            found.append((first, last))
            last = first
    return tuple(found) if len(found) > 1 else ()


def bounds_for(strategy: Strategy, phases: Sequence[PhaseGradient]) -> tuple[Bucket, ...]:
    """The buckets in which workers exchange, the same for all of them; none if they exchange complete payloads.

    A payload is exchanged in buckets if it is the gradient of one batch, from one backward pass.
    """
    exchange = strategy.make_exchange
    plain = exchange.sums_gradients and exchange.is_dense and not exchange.local_optimizer
    if not plain or strategy.groups is None or not strategy.one_batch_per_task or len(phases) > 1:
        return ()
    if phases[0].chain is not None or not announces_gradients(phases[0].phase):
        return ()
    return bucket_bounds(phases[0].flat.sizes, phases[0].flat.buffer.dtype.itemsize)


class BucketFilling:
    """Puts the gradients of one backward pass into the flat gradient, and starts buckets that are complete."""

    def __init__(self, parts: Sequence[Tensor], bounds: Sequence[Bucket], start: Callable[[int], None]) -> None:
        """`parts` are the pieces of the flat gradient, one per parameter."""
        self.parts, self.start, self.next = parts, start, 0
        self.empty = [True] * len(parts)
        ends = accumulate(part.numel() for part in parts)
        numbers = iter(range(len(bounds) - 1, -1, -1))
        number = next(numbers)
        self.bucket_of: list[int] = []
        for end in ends:
            if end > bounds[number][1]:
                number = next(numbers)
            self.bucket_of.append(number)
        self.missing = [self.bucket_of.count(number) for number in range(len(bounds))]

    def put(self, number: int, gradient: Tensor | None) -> None:
        """The gradient of a parameter; None: the loss does not depend on it."""
        with torch.no_grad():
            self.parts[number].zero_() if gradient is None else self.parts[number].copy_(gradient)
        self.empty[number] = False
        self.missing[self.bucket_of[number]] -= 1
        while self.next < len(self.missing) and not self.missing[self.next]:
            self.start(self.next)
            self.next += 1

    def finish(self, gradients: Sequence[Tensor | None]) -> None:
        """Puts what the backward pass did not announce."""
        for number, gradient in enumerate(gradients):
            if self.empty[number]:
                self.put(number, gradient)
