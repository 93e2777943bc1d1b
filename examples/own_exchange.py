"""A custom exchange: workers push the largest entries of their gradient and keep the rest for later.

Trained with simulated and with real workers, and replayed bit by bit.

Run it:  python examples/own_exchange.py
Or:      paceline train dnn --data digits --strategy downpour --exchange own_exchange:Largest:0.05
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor

import paceline


class Largest(paceline.Exchange):
    """Top-k with error feedback (Stich et al. 2018): what is not sent is added to the next gradient."""

    state = ("rest",)  # a vector per worker, zero at first, kept and replayed like its parameters

    def __init__(self, share: str = "0.05") -> None:
        self.share = float(share)  # what follows module:name

    def _count(self, parameters: int) -> int:
        return max(1, int(self.share * parameters))

    def payload_size(self, parameters: int) -> int:
        return 2 * self._count(parameters)  # values, and where they belong

    def encode(self, replica: paceline.Replica, payload: Tensor) -> None:
        rest = replica.state["rest"].add_(replica.gradient)
        count = self._count(len(rest))
        places = rest.abs().topk(count).indices
        payload[:count] = rest[places]
        payload[count:].view(torch.int32).copy_(places)  # the same bits, read as whole numbers
        rest[places] = 0.0

    def decode(self, payload: Tensor, gradient: Tensor) -> None:
        values, places = payload.chunk(2)
        gradient.zero_()[places.view(torch.int32).long()] = values


def flat(directory: Path) -> Tensor:
    saved = torch.load(directory / "checkpoint.pt", weights_only=True)
    return torch.cat([tensor.flatten() for tensor in saved["parameters"].values()])


def show(name: str, run: paceline.Run) -> None:
    assert run.distribution is not None
    staleness = run.distribution.ledger.mean_staleness
    print(f"{name:10} accuracy {100 * run.test_accuracy:.1f} %, staleness {staleness:.1f}")


def main() -> None:
    settings = {"data": "digits", "epochs": 10, "batch": 16, "optimizer": "sgd", "lr": 0.1, "threads": 1}
    settings |= {"exchange": "own_exchange:Largest:0.05", "record_events": True}
    with tempfile.TemporaryDirectory() as place:
        virtual, local = Path(place, "virtual"), Path(place, "local")
        show("simulated", paceline.train("dnn", "downpour", 4, "virtual", out=virtual, **settings))
        show("real", paceline.train("dnn", "downpour", 2, out=local, **settings))
        for directory in (virtual, local):
            print(
                f"replayed {directory.name}: the same bits: {torch.equal(paceline.replay(directory), flat(directory))}"
            )


if __name__ == "__main__":
    main()
