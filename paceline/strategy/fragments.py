"""Fragments in turn (Streaming DiLoCo, Douillard et al. 2025): workers exchange one piece of the parameters at a time.

Round r of a group pushes fragment r modulo their number; an exchange does with it what it otherwise does with the whole
vector. Workers continue with the next round meanwhile. After `overlap_steps` steps of it they take over what the server
made of the fragment, and keep a share of their own:

    w = mixing * w + (1 - mixing) * w_server

So no more than a fragment is under way at a time, and local steps hide how long that takes. Which update a worker takes
over does not depend on timing: it waits for the one of the round before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from paceline.errors import StrategyError
from paceline.strategy.exchange import Exchange, Replica
from paceline.strategy.strategy import Strategy


@dataclass(frozen=True)
class Fragments:
    count: int
    parameters: int
    mixing: float
    """The share of its own parameters that a worker keeps."""

    @staticmethod
    def of(strategy: Strategy, parameters: int) -> Fragments | None:
        """None where the whole vector is exchanged at once."""
        if strategy.fragments is None:
            return None
        if strategy.fragments > parameters:
            raise StrategyError(f"fragments={strategy.fragments} is more than the network's {parameters:,} parameters")
        return Fragments(strategy.fragments, parameters, strategy.mixing)

    def piece(self, number: int) -> slice:
        return slice(number * self.parameters // self.count, (number + 1) * self.parameters // self.count)

    def fetched_piece(self, pushed: int) -> slice:
        """What is fetched in a round that pushes fragment `pushed`: the fragment of the round before."""
        return self.piece((pushed - 1) % self.count)

    def replica(self, whole: Replica, number: int) -> Replica:
        """A worker's copy of the model as an exchange of one fragment sees it."""
        piece = self.piece(number)
        state = {name: vector[piece] for name, vector in whole.state.items()}
        parameters, gradient, fetched = whole.parameters[piece], whole.gradient[piece], whole.fetched[piece]
        return replace(whole, parameters=parameters, gradient=gradient, fetched=fetched, state=state)

    def take_over(self, pushed: int, flat: Tensor, local: Tensor, fetched: Tensor) -> None:
        """Mixes a fetched fragment, and the buffers after the parameters, into a worker's vector."""
        piece = self.fetched_piece(pushed)
        fetched[piece].copy_(flat[piece])
        for mine in (piece, slice(self.parameters, None)):
            if self.mixing:
                local[mine].lerp_(flat[mine].to(local.device), 1 - self.mixing)
            else:
                local[mine].copy_(flat[mine])


def encoded_size(exchange: Exchange, strategy: Strategy, parameters: int) -> int:
    """The length of a payload: of the whole vector, or of its longest fragment."""
    return exchange.payload_size(-(-parameters // (strategy.fragments or 1)))
