"""When a message arrives. Messages in one direction pass the server's link one after another."""

from __future__ import annotations

from typing import NamedTuple

from paceline.simulation.durations import DurationSampler
from paceline.simulation.virtual_cluster import Network
from paceline.strategy.fragments import encoded_size
from paceline.strategy.strategy import Strategy

FLOAT_BYTES = 4


class MessageSizes(NamedTuple):
    fetch_bytes: int
    """The parameters that a worker fetches."""
    push_bytes: int
    """The payload that it pushes, as its exchange encodes it."""
    joining_bytes: int
    """The parameters that it fetches when it joins."""

    @staticmethod
    def of(strategy: Strategy, model_bytes: int, payload_bytes: int) -> MessageSizes:
        """Where parameters are exchanged in fragments, so they are fetched."""
        return MessageSizes(-(-model_bytes // (strategy.fragments or 1)), payload_bytes, model_bytes)


def message_sizes(strategy: Strategy, model_bytes: int) -> MessageSizes:
    """Message sizes of a model of `model_bytes` in float32, with the payloads of a strategy."""
    parameters = model_bytes // FLOAT_BYTES
    numbers = encoded_size(strategy.make_exchange, strategy, parameters) if parameters else parameters
    return MessageSizes.of(strategy, model_bytes, model_bytes if numbers == parameters else FLOAT_BYTES * numbers)


class Links:
    def __init__(self, network: Network, seed: int, messages: MessageSizes) -> None:
        self.latency_s, self.shared = network.latency_s, network.shared
        self.fetch_s = messages.fetch_bytes / network.bandwidth
        self.push_s = messages.push_bytes / network.bandwidth
        self.joining_s = messages.joining_bytes / network.bandwidth
        self.extra = DurationSampler(network.time, seed, 4)
        self._in_free_s = 0.0
        self._out_free_s = 0.0

    def asked(self, worker: int, now_s: float) -> float:
        """When the server has a worker's short question; what a worker copies for itself it need not ask for."""
        return now_s + self.latency_s if self.shared else now_s

    def received(self, worker: int, now_s: float, *, whole: bool = False) -> float:
        """When a worker has the parameters that the server sends now: all of them, where it exchanges fragments."""
        takes_s = self.joining_s if whole else self.fetch_s
        if self.shared:
            now_s = self._out_free_s = max(now_s, self._out_free_s) + takes_s
        else:
            now_s += takes_s
        return now_s + self.latency_s + self.extra.next(worker)

    def pushed(self, worker: int, now_s: float) -> float:
        """When the server has the payload that a worker sends now."""
        if self.shared:
            now_s = self._in_free_s = max(now_s, self._in_free_s) + self.push_s
        else:
            now_s += self.push_s
        return now_s + self.latency_s + self.extra.next(worker)
