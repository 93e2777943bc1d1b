"""How a predicted iteration divides among the pieces of a network that is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cost.partition import Cut
from paceline.cost.prediction import Prediction


@dataclass(frozen=True)
class PieceTime:
    """Seconds of one piece, or of several together: a forward pass, a backward pass, an update."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    update_s: float = 0.0

    @property
    def pass_s(self) -> float:
        return self.forward_s + self.backward_s

    def __add__(self, other: PieceTime) -> PieceTime:
        return PieceTime(
            self.forward_s + other.forward_s, self.backward_s + other.backward_s, self.update_s + other.update_s
        )


def piece_times(prediction: Prediction, pieces: Sequence[Sequence[str]]) -> list[PieceTime]:
    """The time of each piece, given the names of its layers; the last one has what belongs to no layer, as the loss."""
    owner = {name: number for number, names in enumerate(pieces) for name in names}
    found = [PieceTime() for _ in pieces]
    for layer in prediction.layers:
        number = _owner(layer.name, owner, len(pieces) - 1)
        found[number] += PieceTime(layer.forward_s, layer.backward_s, layer.update_s)
    return found


def stage_times(pieces: Sequence[PieceTime], cut: Cut) -> list[PieceTime]:
    """Of consecutive pieces, those of a stage each."""
    bounds = zip(cut, (*cut[1:], len(pieces)), strict=True)
    return [sum(pieces[first:end], PieceTime()) for first, end in bounds]


def _owner(layer: str, owner: dict[str, int], other: int) -> int:
    """The piece of a layer, or of the closest module around it."""
    while layer:
        if layer in owner:
            return owner[layer]
        layer = layer.rpartition(".")[0]
    return other
