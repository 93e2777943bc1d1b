"""A strategy, an exchange, a correction and a server optimizer as a user writes them, under names of their own."""

from __future__ import annotations

import torch

from paceline.strategy.exchange import Exchange
from paceline.strategy.strategy import Strategy


class Halves(Exchange):
    """Every second number of the gradient, in turn; what was left out is sent the next time."""

    state = ("left", "turn")

    def payload_size(self, parameters: int) -> int:
        return (parameters + 1) // 2 + 1

    def encode(self, replica, payload):
        left, turn = replica.state["left"], replica.state["turn"]
        left.add_(replica.gradient)
        first = int(turn[0])
        sent = left[first::2]
        payload.zero_()
        payload[0] = first
        payload[1 : 1 + len(sent)] = sent
        sent.zero_()
        turn[0] = 1 - first

    def decode(self, payload, gradient):
        gradient.zero_()
        part = gradient[int(payload[0]) :: 2]
        part.copy_(payload[1 : 1 + len(part)])


def smoothed(gradient, late):
    """Keeps a mean for each worker and one for all."""
    for kept in (late.state["mine"], late.server_state["ours"]):
        kept.mul_(0.9).add_(gradient, alpha=0.1)
    return (0.5 * gradient + 0.25 * (late.state["mine"] + late.server_state["ours"])) / (1 + late.staleness)


smoothed.state = ("mine",)
smoothed.server_state = ("ours",)


def two_rates(named):
    """Parameter groups and a scheduler."""
    biases = [p for name, p in named.items() if "bias" in name]
    weights = [p for name, p in named.items() if "bias" not in name]
    optimizer = torch.optim.Adam([{"params": weights}, {"params": biases, "lr": 1e-3}], lr=5e-3)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 20, gamma=0.9)


halving = Strategy("halving", groups=None, exchange=f"{__name__}:Halves")
smoothing = Strategy("smoothing", groups=None, correction=f"{__name__}:smoothed")
adam_at_the_server = Strategy("adam-at-the-server", server_optimizer=f"{__name__}:two_rates")
