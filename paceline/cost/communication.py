"""Communication time in closed form: collectives, a parameter server, copies over a bus, loading from a disk.

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
    """(n - 1) * (α + b / B): every member gets the payloads of all others, because encoded payloads cannot be
    summed."""
    _check(size_bytes, members)
    return (members - 1) * (link.latency_s + size_bytes / link.bandwidth)


def nested_all_gather_s(size_bytes: float, machines: int, devices: int, inside: Link, between: Link) -> float:
    """Over the devices of a machine first; then machines exchange the payloads of all their devices."""
    return all_gather_s(size_bytes, devices, inside) + all_gather_s(devices * size_bytes, machines, between)


def nested_all_reduce_s(size_bytes: float, machines: int, devices: int, inside: Link, between: Link) -> float:
    """Over the devices of a machine first, then between machines: all_reduce(devices) + all_reduce(machines)."""
    return all_reduce_s(size_bytes, devices, inside) + all_reduce_s(size_bytes, machines, between)


def divided_average_s(size_bytes: float, machines: int, devices: int, inside: Link, between: Link) -> float:
    """An all-to-all in which each of n members gets its n-th of every payload, and an all-gather of n-ths by a ring.

    d members per machine share its link: α + d (n - d) / n * b / B, and (n - 1) * (α + b / (n B)).
    """
    _check(size_bytes, machines * devices)
    members, link = machines * devices, between if machines > 1 else inside
    sent = devices * (members - devices) if machines > 1 else members - 1
    return link.seconds(sent * size_bytes / members) + (members - 1) * link.seconds(size_bytes / members)


BUCKET_BYTES = 25 << 20
"""The default bucket size of torch's DistributedDataParallel."""


def exposed_exchange_s(exchange_s: Callable[[int], float], size_bytes: int, backward_s: float) -> float:
    """The part of a gradient exchange that is not hidden, when buckets are exchanged during the backward pass.

    n buckets become ready evenly over the backward pass t; each takes e to exchange, one at a time:
    e + (n - 1) max(0, e - t / n). The last bucket is never hidden; the others are as long as computing takes longer.
    """
    _check(size_bytes, 1)
    buckets = max(1, math.ceil(size_bytes / BUCKET_BYTES))
    each_s = exchange_s(math.ceil(size_bytes / buckets))
    return each_s + (buckets - 1) * max(0.0, each_s - backward_s / buckets)


def copy_s(size_bytes: float, link: Link, devices: int = 1) -> float:
    """α + n b / B until all devices of a shared bus have their copy; α + b / B if each has its own link."""
    _check(size_bytes, devices)
    return link.seconds(size_bytes, devices)


def feed_s(batch_bytes: float, disk: Link, readers: int = 1) -> float:
    """From the disk to every reader, each with its own batch: α + n b / B."""
    return copy_s(batch_bytes, disk, readers)


def data_wait_s(fed_s: float, step_s: float, *, prefetch: bool = True) -> float:
    """How long a step waits for its batch: max(0, feed - step) with prefetching, else the whole feed time."""
    return max(0.0, fed_s - step_s) if prefetch else fed_s


@dataclass(frozen=True)
class ParameterServer:
    """Workers that fetch parameters, compute and push; the server and its link serve one worker at a time.

    Without contention a worker's cycle is its chain: request α, parameters b/B + α, compute c, payload p/B + α,
    update s. A link that is not shared needs no request, and copies do not queue.
    """

    workers: int
    compute_s: float
    message_bytes: float
    """b: size of the parameters, and of the payload unless `push_bytes` is given."""
    link: Link
    server_s: float = 0.0
    """Server time per payload."""
    overlap: bool = False
    """Whether a worker continues while its payload is pushed and applied."""
    push_bytes: float | None = None
    """p: size of an encoded payload; None: as large as the parameters."""

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
        """2α + b / B, or α + b / B where no request is needed."""
        return self.transfer_s + self.link.latency_s * (2 if self.link.shared else 1)

    @property
    def chain_s(self) -> float:
        """Fetch, compute, push and update without any waiting."""
        return self.fetch_s + self.compute_s + self.push_s + self.link.latency_s + self.server_s

    @property
    def own_s(self) -> float:
        """Time until a worker continues: the whole chain, or with overlap the part it does not hand off."""
        if not self.overlap:
            return self.chain_s
        copied_s = 0.0 if self.link.shared else self.push_s + self.link.latency_s
        return self.fetch_s + self.compute_s + copied_s

    @property
    def bottleneck_s(self) -> float:
        """Time per cycle on the bottleneck: the busier direction of the link, or the server."""
        return max(self._occupied_s, self.server_s)

    @property
    def _occupied_s(self) -> float:
        """Time per cycle on the link, in its busier direction."""
        return max(self.transfer_s, self.push_s) if self.link.shared else 0.0

    def cycle_s(self) -> float:
        """Step time of an asynchronous worker: max(chain, n * bottleneck), exact if all steps take equally long.

        With overlap the chain is the worker's own part, and at least half of the whole chain, because at most two
        payloads are in flight.
        """
        return max(self.own_s, self.chain_s / 2, self.workers * self.bottleneck_s)

    def random_cycle_s(self) -> float:
        """The mean cycle if step times vary, so that workers queue at the link and at the server.

        Mean value analysis: as in M/D/1, an arriving worker sees the queues of a system with one worker less, the one
        in service half done: R(k) = d (1 + Q(k-1) - ρ(k-1) / 2), X(k) = k / (z + Σ R(k)), Q = X R, ρ = X d. Of two
        stations in series, the push's link and the server, only the slower has a queue. An upper bound if step times
        vary little.
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
        """The cycle if an update waits for all payloads: workers fetch one after another, and updates take n s.

        chain + (n - 1) (max(b, p) / B + s) over a shared link, whose queue of fetches is also the queue of pushes.
        """
        return self.chain_s + (self.workers - 1) * (self._occupied_s + self.server_s)

    def server_share(self) -> float:
        """Share of the time the server is busy."""
        cycle_s = self.cycle_s()
        return self.workers * self.server_s / cycle_s if cycle_s else 0.0

    def steps_per_s(self) -> float:
        """Throughput of all workers."""
        cycle_s = self.cycle_s()
        return self.workers / cycle_s if cycle_s else math.inf


def _check(size_bytes: float, members: int) -> None:
    if not (math.isfinite(size_bytes) and size_bytes >= 0):
        raise InputError(f"a size of {size_bytes:g} bytes should be at least 0")
    if isinstance(members, bool) or not isinstance(members, int) or members < 1:
        raise InputError(f"{members!r} members should be a whole number of at least 1")
