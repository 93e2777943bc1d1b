"""How several servers share a vector: each shard has a slice of it, and the optimizer's state for that slice.

Slices begin at multiples of `ALIGNED` numbers of a phase, so that processors update each number as in the whole vector.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from paceline.errors import StrategyError
from paceline.strategy.layout import Layout, PhaseLayout
from paceline.strategy.server_optimizer import server_optimizer
from paceline.strategy.strategy import Strategy
from paceline.strategy.whole_vectors import needs_whole_vectors
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.vector_parts import ALIGNED

SHARD_BYTES = 256 << 20
"""What one server has of the parameters, unless the number of shards is given."""


def choose_shards(
    asked: int | None, strategy: Strategy, layout: Layout, nodes: int, collective: str, *, always: bool
) -> int:  # fmt: skip
    """The number of shards: as asked, or by size, at most one per node.

    Groups that average among their members push one payload per group, so that one server is enough for them, unless
    shards were asked for and this `collective` was not (`always`).
    """
    obstacle = "" if asked == 1 else _obstacle(strategy, layout)
    if always:
        obstacle = f"groups average among their members (collective {collective})"
    if asked is None:
        return 1 if obstacle or collective != "server" else max(1, min(nodes, -(-layout.size_bytes // SHARD_BYTES)))
    if asked > 1 and obstacle:
        raise StrategyError(f"`server_shards={asked}` is not possible: {obstacle}; leave it out")
    return asked


def _obstacle(strategy: Strategy, layout: Layout) -> str:
    if not strategy.make_exchange.is_dense:
        return f"payloads of the exchange {strategy.exchange} cannot be cut into slices"
    if strategy.fragments is not None:
        return "the strategy exchanges fragments of the parameters in turns"
    whole = needs_whole_vectors(strategy, [server_optimizer(strategy, p, layout.torch_dtype) for p in layout.phases])
    return f"{whole} needs the whole gradient" if whole else ""


class Sharding:
    def __init__(self, job: Job) -> None:
        self.job, self.layout = job, job.layout
        ends = [0, *(self._aligned(number) for number in range(1, job.shards)), job.layout.size]
        self.slices = [slice(first, last) for first, last in itertools.pairwise(ends)]

    def _aligned(self, number: int) -> int:
        """Where a shard begins: near its equal share."""
        layout = self.layout
        wanted = layout.size * number // self.job.shards
        starts = [first for first, _ in layout.phase_ends()] if layout.divided else [0]
        start = max(first for first in (*starts, layout.parameters, 0) if first <= wanted)
        return wanted - (wanted - start) % ALIGNED

    @functools.cached_property
    def of_server(self) -> Job:
        """The server itself has nothing of the vector."""
        return self._job(slice(0, 0))

    def of_shard(self, number: int) -> Job:
        return self._job(self.slices[number])

    def _job(self, piece: slice) -> Job:
        layout = self._layout(piece)
        return replace(self.job, layout=layout, payload_size=layout.size)

    def _layout(self, piece: slice) -> Layout:
        phases = []
        for phase, (first, last) in zip(self.layout.phases, self.layout.phase_ends(), strict=True):
            own = _overlap(piece, first, last)
            start = None if self.layout.divided else own.start - piece.start
            phases.append(PhaseLayout(phase.rule, (("slice", (own.stop - own.start,)),), start))
        buffers = _overlap(piece, self.layout.parameters, self.layout.size)
        return replace(self.layout, phases=tuple(phases), buffers=buffers.stop - buffers.start)

    # The state that a server starts from

    def state_of_server(self, state: ServerState) -> ServerState:
        return self._cut(state, slice(0, 0))

    def states_of_shards(self, state: ServerState) -> list[ServerState]:
        return [self._cut(state, piece) for piece in self.slices]

    def _cut(self, state: ServerState, piece: slice) -> ServerState:
        saved = state.saved
        if saved is not None:
            tensors = {name: self._cut_tensor(name, tensor, piece) for name, tensor in saved["state"].items()}
            own = _overlap(piece, 0, self.layout.parameters)
            corrections = [{name: kept[own] for name, kept in group.items()} for group in saved["corrections"]]
            saved = {**saved, "state": tensors, "corrections": corrections}
        return replace(state, parameters=state.parameters[piece], saved=saved)

    def _cut_tensor(self, name: str, tensor: Tensor, piece: slice) -> Tensor:
        if not tensor.dim():
            return tensor
        first, last = self._extent(name)
        own = _overlap(piece, first, last)
        return tensor[own.start - first : own.stop - first]

    def _extent(self, name: str) -> tuple[int, int]:
        """Where the numbers of the vector are that this part of the state belongs to."""
        phase = name.partition(".")[0]
        return self.layout.phase_ends()[int(phase)] if phase.isdigit() else (0, self.layout.parameters)

    def whole(self, states: Sequence[ServerState]) -> ServerState:
        """The state of which each shard has a slice; all of the same version."""
        first = states[0]
        if first.saved is None:
            return replace(first, parameters=torch.cat([state.parameters for state in states]))
        saved = [state.saved or {} for state in states]
        joined = {
            **first.saved,
            "state": {name: self._join(name, [each["state"][name] for each in saved]) for name in first.saved["state"]},
            "corrections": [_joined(groups) for groups in zip(*(each["corrections"] for each in saved), strict=True)],
        }
        return replace(first, parameters=torch.cat([state.parameters for state in states]), saved=joined)

    def _join(self, name: str, tensors: list[Tensor]) -> Tensor:
        """Scalars change only where a shard has some of the phase."""
        if tensors[0].dim():
            return torch.cat(tensors)
        own = (_overlap(piece, *self._extent(name)) for piece in self.slices)
        return next((t for t, part in zip(tensors, own, strict=True) if part.stop > part.start), tensors[0])


def _overlap(piece: slice, first: int, last: int) -> slice:
    """What a slice has of the numbers from `first` to `last`."""
    start = min(max(first, piece.start), piece.stop)
    return slice(start, max(start, min(last, piece.stop)))


def _joined(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: torch.cat([group[name] for group in groups]) for name in groups[0]}
