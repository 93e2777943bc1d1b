"""When a message arrives. Messages in one direction pass the server's link one after another."""

from __future__ import annotations

from paceline.simulate.durations import Clockwork
from paceline.simulate.virtual_cluster import Network


class Links:
    def __init__(self, network: Network, seed: int, message_bytes: int) -> None:
        self.latency_s, self.shared = network.latency_s, network.shared
        self.occupied_s = message_bytes / network.bandwidth
        self.extra = Clockwork(network.time, seed, 4)
        self._in_free_s = 0.0
        self._out_free_s = 0.0

    def asked(self, worker: int, now_s: float) -> float:
        """When the server has a worker's short question; what a worker copies for itself it need not ask for."""
        return now_s + self.latency_s if self.shared else now_s

    def received(self, worker: int, now_s: float) -> float:
        """When a worker has the parameters that the server sends now."""
        if self.shared:
            now_s = self._out_free_s = max(now_s, self._out_free_s) + self.occupied_s
        else:
            now_s += self.occupied_s
        return now_s + self.latency_s + self.extra.next(worker)

    def pushed(self, worker: int, now_s: float) -> float:
        """When the server has the payload that a worker sends now."""
        if self.shared:
            now_s = self._in_free_s = max(now_s, self._in_free_s) + self.occupied_s
        else:
            now_s += self.occupied_s
        return now_s + self.latency_s + self.extra.next(worker)
