"""What workers push and how the server reads it: one object per kind of exchange, built in or the user's own.

The base class is the plain exchange of gradients. Another kind overrides what differs: how large a payload is, how a
worker encodes it and how the server decodes it. The attributes say what the worker does between two pushes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from torch import Tensor

from paceline.errors import StrategyError, a_type
from paceline.strategy.plugin import BuiltIn, resolve_plugin


@dataclass(eq=False)
class Replica:
    """A worker's copy of the model as an exchange sees it: flat vectors of all parameters."""

    parameters: Tensor
    """What the network computes on; an exchange may change it."""
    gradient: Tensor
    """The sum of the gradients since the last push."""
    fetched: Tensor
    """The parameters as they were fetched last; the same tensor as `parameters` unless `keeps_fetched`."""
    workers: int
    state: dict[str, Tensor] = field(default_factory=dict)
    """The exchange's own vectors, zero when the worker starts."""


class Exchange:
    """Gradients: a payload is the sum of the gradients since the last push. Subclasses exchange something else."""

    local_optimizer: bool = False
    """Whether a worker updates its copy with the workload's optimizer in every step."""
    keeps_fetched: bool = False
    """Whether `encode` looks at the parameters as they were fetched."""
    fetch_first: bool = False
    """Whether every task begins with a fetch, whatever `fetch_every` says."""
    fetch_last: bool = False
    """Whether the newest parameters are fetched once more before `encode`, as `fetched`, without replacing the copy."""
    weighted: bool = True
    """Whether payloads of a group count by their samples, as gradients do, or equally."""
    state: tuple[str, ...] = ()
    """Names of flat vectors that a worker keeps between two pushes."""

    def payload_size(self, parameters: int) -> int:
        """The length of a payload for a model with this many parameters; links carry exactly that."""
        return parameters

    def encode(self, replica: Replica, payload: Tensor) -> None:
        """Writes the payload from what the worker has."""
        payload.copy_(replica.gradient)

    def decode(self, payload: Tensor, gradient: Tensor) -> None:
        """Writes what the server's optimizer gets as its gradient; `payload` must not be changed."""
        gradient.copy_(payload)

    @property
    def sums_gradients(self) -> bool:
        """Whether gradients can be computed straight into the payload."""
        return type(self).encode is Exchange.encode

    @property
    def is_dense(self) -> bool:
        """Whether a payload is the gradient itself and needs no decoding."""
        return type(self).decode is Exchange.decode


def _built_in() -> dict[str, BuiltIn]:
    from paceline.strategy.exchanges.delta import Delta
    from paceline.strategy.exchanges.elastic import Elastic
    from paceline.strategy.exchanges.int8 import Int8
    from paceline.strategy.exchanges.momentum_topk import MomentumTopK
    from paceline.strategy.exchanges.topk import TopK

    return {
        "gradient": BuiltIn(Exchange),
        "delta": BuiltIn(Delta),
        "elastic": BuiltIn(Elastic, takes_number=True, default=0.9),
        "topk": BuiltIn(TopK, takes_number=True, default=0.01),
        "int8": BuiltIn(Int8),
        "momentum-topk": BuiltIn(MomentumTopK, takes_number=True, default=0.01),
    }


@functools.lru_cache(maxsize=64)
def find_exchange(text: str) -> Exchange:
    """The exchange that a strategy names: built in, the user's subclass of `Exchange` as module:name, or two with +."""
    first, plus, second = text.partition("+")
    if plus:
        from paceline.strategy.exchanges.composed import Composed

        return Composed(text, find_exchange(first), find_exchange(second))
    found = resolve_plugin("exchange", text, _built_in())
    if not isinstance(found, Exchange):
        raise StrategyError(
            f"exchange {text} is {a_type(found)}, not a subclass of paceline.strategy.exchange.Exchange"
        )
    if not isinstance(found.state, tuple | list) or not all(isinstance(name, str) for name in found.state):
        raise StrategyError(f"exchange {text}: its attribute state should be a tuple of names, not {found.state!r:.60}")
    size = found.payload_size(1000)
    if not isinstance(size, int) or size < 1:
        raise StrategyError(f"exchange {text}: payload_size(1000) is {size!r:.40}; it should be a whole number above 0")
    return found
