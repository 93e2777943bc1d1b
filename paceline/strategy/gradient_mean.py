"""From payloads to the gradient that the server's optimizer gets: the mean of each group's payloads, corrected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.strategy.correction import Late, State
from paceline.strategy.instructions import Apply
from paceline.strategy.strategy import Strategy


class Payload(NamedTuple):
    """What a worker pushed, as it was encoded; buffers come after the encoded part."""

    values: Tensor
    samples: int
    steps: int


class GroupContribution(NamedTuple):
    """What a group gives to an update, with the correction's state for that group."""

    payloads: Sequence[Payload]
    """In the order in which the update names them."""
    fetched: Tensor | None
    """What the payloads were computed on; only a correction looks at it."""
    before: State
    """The correction's state before the update, and after it; they may be the same tensors."""
    after: State
    prepared: Tensor | None = None
    """What `Updater.prepare` returned, where it was called before."""


@dataclass(eq=False)
class Scratch:
    """Memory for one block, of one thread."""

    gradient: Tensor
    part: Tensor
    room: Tensor
    correction: tuple[Tensor, Tensor] | None = None
    """For what a correction with `prepare` keeps in between; its result goes to `part`."""


class Block(NamedTuple):
    """A piece of the parameters that is updated at once."""

    phase: int
    length: int
    piece: slice | None
    """Of the whole vector; None: all of it, since cutting a tensor takes as long as adding a few thousand numbers."""
    in_phase: slice | None
    """Of the phase's parameters; None: all of them."""
    is_last: bool
    """Of its phase: scalars of the optimizer's state change with it."""

    @property
    def first(self) -> int:
        """Where it begins in the whole vector."""
        return 0 if self.piece is None else int(self.piece.start)


class GradientMean:
    def __init__(self, strategy: Strategy) -> None:
        self.exchange, self.correction = strategy.make_exchange, strategy.make_correction

    def of(
        self, order: Apply, given: Sequence[GroupContribution], old: Tensor, block: Block, scratch: Scratch,
        before: State, after: State, rate: float,
    ) -> Tensor:  # fmt: skip
        """The mean of the groups' gradients: a payload itself where there is but one, which is not to be changed."""
        if len(given) == 1:
            return self._of_group(order, 0, given[0], old, block, scratch, scratch.gradient, before, after, rate)
        total = scratch.gradient[: block.length].zero_()
        for number, one in enumerate(given):
            total.add_(self._of_group(order, number, one, old, block, scratch, scratch.part, before, after, rate))
        return total.div_(len(given))

    def _of_group(
        self, order: Apply, number: int, one: GroupContribution, old: Tensor, block: Block, scratch: Scratch,
        room: Tensor, before: State, after: State, rate: float,
    ) -> Tensor:  # fmt: skip
        """The mean of a group's payloads, corrected."""
        correction, piece = self.correction, block.piece
        if correction is None and len(one.payloads) == 1:
            return cut(one.payloads[0].values, piece)
        mean = self._mean_of_group(one.payloads, block, room)
        if correction is None:
            return mean
        if len(one.payloads) == 1 and not correction.elementwise:  # the user's own may change what it is given
            mean = room[: block.length].copy_(mean)
        server_state = {}
        for name in correction.server_state:
            was, becomes = cut(before[f"correction.{name}"], piece), cut(after[f"correction.{name}"], piece)
            server_state[name] = becomes if number or becomes.data_ptr() == was.data_ptr() else becomes.copy_(was)
        rooms = scratch.correction
        if rooms is not None and len(rooms[0]) != block.length:
            rooms = rooms[0][: block.length], rooms[1][: block.length]
        prepared, kept = one.prepared, {name: cut(tensor, piece) for name, tensor in one.after.items()}
        if correction.prepare is None:
            for name, becomes in kept.items():
                if one.after[name] is not one.before[name]:
                    becomes.copy_(cut(one.before[name], piece))
        elif prepared is None:
            assert rooms is not None
            was_kept = {name: cut(tensor, piece) for name, tensor in one.before.items()}
            prepared = correction.prepare(mean, was_kept, kept, rooms)
        contribution, current = order.contributions[number], cut(old, piece)
        first, fetched = contribution.tasks[0], current if one.fetched is None else cut(one.fetched, piece)
        late = Late(
            current, fetched, contribution.staleness, first.worker, first.sequence, rate, kept, server_state, prepared,
            (rooms[1], scratch.part[: block.length]) if rooms is not None else None,
        )  # fmt: skip
        return correction.function(mean, late)

    def _mean_of_group(self, payloads: Sequence[Payload], block: Block, room: Tensor) -> Tensor:
        """Gradients count by their samples per step, so that a mean equals the gradient of the joined batch."""
        if len(payloads) == 1:
            return cut(payloads[0].values, block.piece)
        weights = [p.samples / p.steps if self.exchange.weighted else 1.0 for p in payloads]
        room = cut(room, None if len(room) == block.length else slice(0, block.length))
        return weighted_mean([cut(p.values, block.piece) for p in payloads], weights, room)


def weighted_mean(values: Sequence[Tensor], weights: Sequence[float], out: Tensor) -> Tensor:
    """The mean of several vectors, added up in their order; `out` may be one of them."""
    total, mean = weights[0], values[0]
    between = torch.empty_like(out) if len(values) > 2 else out
    for number, weight in enumerate(weights[1:], 1):
        total += weight
        is_last = number == len(values) - 1
        mean = torch.lerp(mean, values[number], weight / total, out=out if is_last else between)
    return mean


def mean_of_buffers(values: Sequence[Tensor], out: Tensor) -> Tensor:
    """Every payload's buffers count alike; `out` may be some of them."""
    mean = values[0].clone()
    for count, value in enumerate(values[1:], 2):
        mean.add_(value - mean, alpha=1 / count)
    return out.copy_(mean)


def cut(tensor: Tensor, piece: slice | None) -> Tensor:
    return tensor if piece is None else tensor[piece]
