"""What the server computes: payloads become an update. No process, no clock; the same bits whoever calls it.

It goes through the vectors in blocks that stay in the cache, so a correction costs arithmetic but hardly any traffic to
memory. Blocks can be shared among threads: PyTorch releases the interpreter's lock while it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.step.clipping import clip_norm_
from paceline.strategy.correction import Late, State
from paceline.strategy.instructions import Apply
from paceline.strategy.layout import Layout
from paceline.strategy.server_optimizer import ServerOptimizer, server_optimizer
from paceline.strategy.strategy import Strategy

BLOCK = 1 << 16


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


@dataclass(eq=False)
class _Scratch:
    """Memory for one block, of one thread."""

    gradient: Tensor
    part: Tensor
    room: Tensor


class _Block(NamedTuple):
    """A piece of the parameters that is updated at once."""

    phase: int
    piece: slice
    """Of all parameters."""
    in_phase: slice | None
    """Of the phase's parameters; None: all of them."""
    is_last: bool
    """Of its phase: scalars of the optimizer's state change with it."""


class Updater:
    def __init__(self, strategy: Strategy, layout: Layout, workers: int, threads: int = 1) -> None:
        self.strategy, self.layout = strategy, layout
        self.exchange, self.correction = strategy.make_exchange, strategy.make_correction
        self.passes = workers if strategy.full_pass_per_worker else 1
        """How often an epoch goes over the data."""
        dtype = layout.torch_dtype
        self.optimizers: list[ServerOptimizer] = [server_optimizer(strategy, phase, dtype) for phase in layout.phases]
        self.encoded = self.exchange.payload_size(layout.parameters)
        clips = [optimizer.rule.clip_norm for optimizer in self.optimizers]
        self._clips = clips if any(clips) else []
        whole = self.correction is not None and not self.correction.elementwise
        whole = whole or bool(self._clips) or not all(optimizer.elementwise for optimizer in self.optimizers)
        self._whole = torch.zeros(layout.parameters, dtype=dtype) if whole else None
        """The mean of all payloads, where something needs it whole before parameters change."""
        self._decoded: list[Tensor] = []
        self._ends = layout.phase_ends()
        self._blocks = self._divided()
        threads = max(1, min(threads, len(self._blocks)))
        longest = max((block.piece.stop - block.piece.start for block in self._blocks), default=1)
        rooms = [[torch.zeros(longest, dtype=dtype) for _ in range(3)] for _ in range(threads)]
        self._scratch = [_Scratch(*three) for three in rooms]
        self._pool = ThreadPoolExecutor(threads, "paceline-update") if threads > 1 else None
        self._views: dict[tuple[int, int], tuple[State, dict[str, Tensor]]] = {}

    def _divided(self) -> list[_Block]:
        """An optimizer that needs whole vectors gets its phase whole."""
        blocks = []
        for phase, (first, last) in enumerate(self._ends):
            length = BLOCK if self.optimizers[phase].elementwise else max(1, last - first)
            for start in range(first, last, length):
                end = min(start + length, last)
                in_phase = None if end - start == last - first else slice(start - first, end - first)
                blocks.append(_Block(phase, slice(start, end), in_phase, end == last))
        return blocks

    # The state that belongs to a version of the parameters

    def initial_state(self) -> dict[str, Tensor]:
        """Of the optimizers and of the correction at the server: flat vectors, and scalars without a dimension."""
        state = {
            f"{phase}.{name}": tensor
            for phase, optimizer in enumerate(self.optimizers)
            for name, tensor in optimizer.initial_state().items()
        }
        names = self.correction.server_state if self.correction is not None else ()
        return {**state, **{f"correction.{name}": self._zeros() for name in names}}

    @property
    def correction_state_names(self) -> tuple[str, ...]:
        return self.correction.state if self.correction is not None else ()

    def initial_correction_state(self) -> dict[str, Tensor]:
        """What the correction keeps for each group: flat vectors of all parameters, zero at first."""
        return {name: self._zeros() for name in self.correction_state_names}

    def _zeros(self) -> Tensor:
        return torch.zeros(self.layout.parameters, dtype=self.layout.torch_dtype)

    @property
    def needs_fetched(self) -> bool:
        """Whether an update looks at what its payloads were computed on."""
        return self.correction is not None and self.correction.needs_fetched

    def decode(self, payload: Tensor, out: Tensor) -> Tensor:
        """The gradient in an encoded payload; `out` is written only where that is not the payload itself."""
        if self.exchange.is_dense:
            return payload[: self.encoded]
        self.exchange.decode(payload[: self.encoded], out)
        return out

    # An update

    @torch.no_grad()
    def apply(
        self, order: Apply, given: Sequence[GroupContribution], old: Tensor, new: Tensor, before: State, after: State
    ) -> None:
        """Writes the parameters after the update to `new`; `old` and `new` may be one tensor, as may the states."""
        step = order.closed // self.passes
        rates = [self.layout.rate(optimizer.rule, order.epoch, step) for optimizer in self.optimizers]
        if not self.exchange.is_dense:
            given = self._all_decoded(given)
        mean = None
        if self._whole is not None:
            mean = self._mean_of_all(order, given, old, before, after, rates[0])

        def work(numbers: Sequence[int], scratch: _Scratch) -> None:
            with torch.no_grad():
                for number in numbers:
                    block = self._blocks[number]
                    piece, rate = block.piece, rates[block.phase]
                    if mean is not None:
                        gradient = mean[piece]
                    else:
                        gradient = self._mean(order, given, old, piece, scratch, before, after, rate)
                    self._update(number, gradient, old, new, before, after, rate, scratch.room)

        if self._pool is None:
            work(range(len(self._blocks)), self._scratch[0])
        else:
            count = len(self._scratch)
            shares = [range(first, len(self._blocks), count) for first in range(count)]
            list(self._pool.map(work, shares, self._scratch))
        self._mean_of_buffers(given, new)

    def _update(
        self, number: int, gradient: Tensor, old: Tensor, new: Tensor, before: State, after: State, rate: float,
        room: Tensor,
    ) -> None:  # fmt: skip
        block = self._blocks[number]
        mine, then = self._view(number, before), self._view(number, after)
        if not block.is_last and before is not after:
            then = {name: t if t.dim() else mine[name].clone() for name, t in then.items()}
        elif not block.is_last:
            mine = then = {name: t if t.dim() else t.clone() for name, t in then.items()}
        source = old[block.piece]
        target = source if new is old else new[block.piece]
        self.optimizers[block.phase].update(source, gradient, target, mine, then, rate, room)

    def _view(self, number: int, state: State) -> dict[str, Tensor]:
        """The part of the optimizers' state that belongs to a block; cut once, for the same states come again."""
        key = number, id(state)
        if key not in self._views:
            block = self._blocks[number]
            prefix, piece = f"{block.phase}.", block.in_phase
            found = {name.removeprefix(prefix): t for name, t in state.items() if name.startswith(prefix)}
            if piece is not None:
                found = {name: t[piece] if t.dim() else t for name, t in found.items()}
            self._views[key] = state, found  # the state itself is kept too, so that its id stays its own
        return self._views[key][1]

    # From payloads to a gradient

    def _all_decoded(self, given: Sequence[GroupContribution]) -> list[GroupContribution]:
        number, decoded = 0, []
        for one in given:
            payloads = []
            for payload in one.payloads:
                if number == len(self._decoded):
                    self._decoded.append(torch.zeros(self.layout.size, dtype=self.layout.torch_dtype))
                out, number = self._decoded[number], number + 1
                self.exchange.decode(payload.values[: self.encoded], out[: self.layout.parameters])
                out[self.layout.parameters :] = payload.values[self.encoded :]
                payloads.append(payload._replace(values=out))
            decoded.append(one._replace(payloads=payloads))
        return decoded

    def _mean_of_all(
        self, order: Apply, given: Sequence[GroupContribution], old: Tensor, before: State, after: State, rate: float
    ) -> Tensor:
        assert self._whole is not None
        everything = slice(0, self.layout.parameters)
        part = torch.empty_like(self._whole) if len(given) > 1 else self._whole
        scratch = _Scratch(self._whole, part, part)
        mean = self._mean(order, given, old, everything, scratch, before, after, rate)
        if mean is not self._whole:
            self._whole.copy_(mean)
        for (first, last), clip in zip(self._ends, self._clips, strict=False):
            if clip:
                clip_norm_([self._whole[first:last]], clip)
        return self._whole

    def _mean(
        self, order: Apply, given: Sequence[GroupContribution], old: Tensor, piece: slice, scratch: _Scratch,
        before: State, after: State, rate: float,
    ) -> Tensor:  # fmt: skip
        """The mean of the groups' gradients: a payload itself where there is but one, which is not to be changed."""
        if len(given) == 1:
            return self._of_group(order, 0, given[0], old, piece, scratch.gradient, before, after, rate)
        total = scratch.gradient[: piece.stop - piece.start].zero_()
        for number, one in enumerate(given):
            total.add_(self._of_group(order, number, one, old, piece, scratch.part, before, after, rate))
        return total.div_(len(given))

    def _of_group(
        self, order: Apply, number: int, one: GroupContribution, old: Tensor, piece: slice, room: Tensor,
        before: State, after: State, rate: float,
    ) -> Tensor:  # fmt: skip
        """The mean of a group's payloads, corrected."""
        mean = self._mean_of_group(one.payloads, piece, room[: piece.stop - piece.start])
        if self.correction is None:
            return mean
        if len(one.payloads) == 1 and not self.correction.elementwise:  # the user's own may change what it is given
            mean = room[: piece.stop - piece.start].copy_(mean)
        contribution = order.contributions[number]
        first = contribution.tasks[0]
        current = old[piece]
        server_state = {}
        for name in self.correction.server_state:
            was, becomes = before[f"correction.{name}"][piece], after[f"correction.{name}"][piece]
            server_state[name] = becomes if number or becomes.data_ptr() == was.data_ptr() else becomes.copy_(was)
        kept = {}
        for name in self.correction.state:
            was, becomes = one.before[name], one.after[name]
            kept[name] = becomes[piece] if becomes is was else becomes[piece].copy_(was[piece])
        late = Late(
            current, current if one.fetched is None else one.fetched[piece], contribution.staleness, first.worker,
            first.sequence, rate, kept, server_state,
        )  # fmt: skip
        return self.correction.function(mean, late)

    def _mean_of_group(self, payloads: Sequence[Payload], piece: slice, room: Tensor) -> Tensor:
        """Gradients count by their samples per step, so that a mean equals the gradient of the joined batch."""
        if len(payloads) == 1:
            return payloads[0].values[piece]
        weights = [p.samples / p.steps if self.exchange.weighted else 1.0 for p in payloads]
        total, mean = weights[0], payloads[0].values[piece]
        for payload, weight in zip(payloads[1:], weights[1:], strict=True):
            total += weight
            mean = torch.lerp(mean, payload.values[piece], weight / total, out=room)
        return mean

    def _mean_of_buffers(self, given: Sequence[GroupContribution], new: Tensor) -> None:
        """Buffers are no sums: their mean in a group, and of several groups the last."""
        if self.layout.buffers:
            payloads = [payload.values[-self.layout.buffers :] for payload in given[-1].payloads]
            mean = new[self.layout.parameters : self.layout.size].copy_(payloads[0])
            for count, payload in enumerate(payloads[1:], 2):
                mean.add_(payload - mean, alpha=1 / count)
