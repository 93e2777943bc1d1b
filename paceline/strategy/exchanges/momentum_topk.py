"""Deep Gradient Compression (Lin et al. 2018): top-k of locally accumulated momentum, with momentum correction.

    u = m u + g        v = v + u        send the largest entries of v, then clear u and v where they were sent

Momentum is applied by the workers, so the server's optimizer should be plain SGD.
"""

from __future__ import annotations

from torch import Tensor

from paceline.strategy.exchange import Replica
from paceline.strategy.exchanges.topk import TopK, send_largest

MOMENTUM = 0.9


class MomentumTopK(TopK):
    state: tuple[str, ...] = ("velocity", "unsent")

    def encode(self, replica: Replica, payload: Tensor) -> None:
        velocity = replica.state["velocity"].mul_(MOMENTUM).add_(replica.gradient)
        unsent = replica.state["unsent"].add_(velocity)
        velocity[send_largest(unsent, self.count(len(unsent)), payload)] = 0.0
