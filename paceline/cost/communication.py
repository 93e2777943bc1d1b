"""What communication takes, in closed form: collectives, a parameter server, copies over a bus, feeding from a disk.

b: bytes of a message; α: latency; B: bandwidth; n: members or workers. A message alone takes α + b / B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.cluster.link import Link
from paceline.errors import InputError


def ring_all_reduce_s(size_bytes: float, members: int, link: Link) -> float:
    """2 (n - 1) * (α + b / (n B)): a reduce-scatter and an all-gather, n - 1 steps of an n-th each."""
    _check(size_bytes, members)
    return 2 * (members - 1) * (link.latency_s + size_bytes / members / link.bandwidth)


def tree_all_reduce_s(size_bytes: float, members: int, link: Link) -> float:
    """2 ⌈log2 n⌉ * (α + b / B): a reduction up a binomial tree, and a broadcast down; good for small messages."""
    _check(size_bytes, members)
    return 2 * math.ceil(math.log2(members)) * (link.latency_s + size_bytes / link.bandwidth)


def all_reduce_s(size_bytes: float, members: int, link: Link) -> float:
    """The faster of ring and tree, as libraries choose it."""
    return min(ring_all_reduce_s(size_bytes, members, link), tree_all_reduce_s(size_bytes, members, link))


def all_gather_s(size_bytes: float, members: int, link: Link) -> float:
    """(n - 1) * (α + b / B): every member gets the payloads of all others, as encoded ones cannot be added up."""
    _check(size_bytes, members)
    return (members - 1) * (link.latency_s + size_bytes / link.bandwidth)


def nested_all_gather_s(size_bytes: float, machines: int, devices: int, inside: Link, between: Link) -> float:
    """Over the devices of a machine first; then machines exchange the payloads of all their devices."""
    return all_gather_s(size_bytes, devices, inside) + all_gather_s(devices * size_bytes, machines, between)


def nested_all_reduce_s(size_bytes: float, machines: int, devices: int, inside: Link, between: Link) -> float:
    """Over the devices of a machine first, then between machines: all_reduce(devices) + all_reduce(machines)."""
    return all_reduce_s(size_bytes, devices, inside) + all_reduce_s(size_bytes, machines, between)


BUCKET_BYTES = 25 << 20
"""Of gradients that are sent together, as torch's DistributedDataParallel has it if nothing else is said."""


def exposed_s(exchange_s: Callable[[int], float], size_bytes: int, backward_s: float) -> float:
    """What of an exchange of gradients is not hidden, where it begins bucket by bucket during the backward pass.

    n buckets are ready one after another, evenly over the backward pass t; each takes e to exchange, one at a time:
    e + (n - 1) max(0, e - t / n). The last is never hidden, the others as far as computing takes longer.
    """
    _check(size_bytes, 1)
    buckets = max(1, math.ceil(size_bytes / BUCKET_BYTES))
    each_s = exchange_s(math.ceil(size_bytes / buckets))
    return each_s + (buckets - 1) * max(0.0, each_s - backward_s / buckets)


def copy_s(size_bytes: float, link: Link, devices: int = 1) -> float:
    """α + n b / B until all devices of a shared bus have their copy; α + b / B where each has a link of its own."""
    _check(size_bytes, devices)
    return link.seconds(size_bytes, devices)


def feed_s(batch_bytes: float, disk: Link, readers: int = 1) -> float:
    """From the disk to every reader, each with a batch of its own: α + n b / B."""
    return copy_s(batch_bytes, disk, readers)


def data_wait_s(fed_s: float, step_s: float, *, prefetch: bool = True) -> float:
    """What a step waits for its batch: max(0, feed - step) when the next is fetched meanwhile, else the whole feed."""
    return max(0.0, fed_s - step_s) if prefetch else fed_s


@dataclass(frozen=True)
class ParameterServer:
    """Workers that fetch parameters, compute and push; the server's link and the server take one at a time.

    A worker's cycle, with nobody else there, is its chain: ask α, parameters b/B + α, compute c, payload p/B + α,
    update s. With a link that is not shared there is nothing to ask for, and copies do not queue.
    """

    workers: int
    compute_s: float
    message_bytes: float
    """b: the parameters, and the payload too unless `push_bytes` says otherwise."""
    link: Link
    server_s: float = 0.0
    """Of the server for each payload."""
    overlap: bool = False
    """Whether a worker continues while its payload is pushed and applied."""
    push_bytes: float | None = None
    """p: a payload as its exchange encodes it; None: as large as the parameters."""

    def __post_init__(self) -> None:
        _check(self.message_bytes, self.workers)
        _check(self.message_bytes if self.push_bytes is None else self.push_bytes, self.workers)
        for key in ("compute_s", "server_s"):
            if not (math.isfinite(getattr(self, key)) and getattr(self, key) >= 0):
                raise InputError(f"{key}={getattr(self, key):g} should be at least 0")

    @property
    def transfer_s(self) -> float:
        """b / B: how long fetched parameters occupy the link."""
        return self.message_bytes / self.link.bandwidth

    @property
    def push_s(self) -> float:
        """p / B: how long a payload occupies the link."""
        return (self.message_bytes if self.push_bytes is None else self.push_bytes) / self.link.bandwidth

    @property
    def fetch_s(self) -> float:
        """2α + b / B, or α + b / B where there is nothing to ask for."""
        return self.transfer_s + self.link.latency_s * (2 if self.link.shared else 1)

    @property
    def chain_s(self) -> float:
        """Fetch, compute, push and update without any waiting."""
        return self.fetch_s + self.compute_s + self.push_s + self.link.latency_s + self.server_s

    @property
    def own_s(self) -> float:
        """What a worker does before it continues: all of the chain, or with overlap what nobody else does for it."""
        if not self.overlap:
            return self.chain_s
        copied_s = 0.0 if self.link.shared else self.push_s + self.link.latency_s
        return self.fetch_s + self.compute_s + copied_s

    @property
    def busiest_s(self) -> float:
        """What a cycle occupies of the link in one direction, or of the server, whichever is more."""
        return max(self._occupied_s, self.server_s)

    @property
    def _occupied_s(self) -> float:
        """What a cycle occupies of the link, in the direction that carries more."""
        return max(self.transfer_s, self.push_s) if self.link.shared else 0.0

    def cycle_s(self) -> float:
        """Of an asynchronous worker, step to step: max(chain, n * busiest), exact where every step takes equally long.

        With overlap the chain is what a worker does itself, and at least half of all: two payloads are under way at
        most.
        """
        return max(self.own_s, self.chain_s / 2, self.workers * self.busiest_s)

    def random_cycle_s(self) -> float:
        """The same where steps vary, so that workers meet at the link and at the server: mean values by recursion.

        As in M/D/1, who comes finds the others of a system with one worker less, the one in service half done:
        R(k) = d (1 + Q(k-1) - ρ(k-1) / 2), X(k) = k / (z + Σ R(k)), Q = X R, ρ = X d. Of two places in a row, the
        push's link and the server, only the slower has a queue. An upper estimate where steps vary little.
        """
        transfer_s, push_s = (self.transfer_s, self.push_s) if self.link.shared else (0.0, 0.0)
        queues = [transfer_s] if self.overlap else [transfer_s, max(push_s, self.server_s)]
        rest_s = self.own_s - sum(queues)
        waiting, busy, rate = [0.0] * len(queues), [0.0] * len(queues), 0.0
        for present in range(1, self.workers + 1):
            stays_s = [d * (1 + q - r / 2) for d, q, r in zip(queues, waiting, busy, strict=True)]
            whole_s = max(rest_s + sum(stays_s), present * max(queues))
            if not whole_s:
                return 0.0
            rate = present / whole_s
            waiting, busy = [rate * stay for stay in stays_s], [rate * d for d in queues]
        return max(self.workers / rate, self.cycle_s())

    def synchronous_cycle_s(self) -> float:
        """Where an update waits for all payloads: all fetch, one after another, and the update takes n s.

        chain + (n - 1) (max(b, p) / B + s) over a shared link, whose queue of fetches is also the queue of pushes.
        """
        return self.chain_s + (self.workers - 1) * (self._occupied_s + self.server_s)

    def server_share(self) -> float:
        """Of the time that the server is busy."""
        cycle_s = self.cycle_s()
        return self.workers * self.server_s / cycle_s if cycle_s else 0.0

    def steps_per_s(self) -> float:
        """Of all workers together."""
        cycle_s = self.cycle_s()
        return self.workers / cycle_s if cycle_s else math.inf


def _check(size_bytes: float, members: int) -> None:
    if not (math.isfinite(size_bytes) and size_bytes >= 0):
        raise InputError(f"a size of {size_bytes:g} bytes should be at least 0")
    if isinstance(members, bool) or not isinstance(members, int) or members < 1:
        raise InputError(f"{members!r} members should be a whole number of at least 1")
