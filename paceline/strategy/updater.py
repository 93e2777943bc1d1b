"""What the server computes: payloads become an update. No process, no clock; the same bits whoever calls it.

It goes through the vectors in blocks that stay in the cache, so a correction costs arithmetic but hardly any traffic to
memory. Blocks can be shared among threads: PyTorch releases the interpreter's lock while it computes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from paceline.step.clipping import clip_norm_
from paceline.strategy.correction import State
from paceline.strategy.decoding import Decoding
from paceline.strategy.gradient_mean import (
    Block,
    GradientMean,
    GroupContribution,
    Scratch,
    cut,
    mean_of_buffers,
)
from paceline.strategy.instructions import Apply
from paceline.strategy.layout import Layout
from paceline.strategy.server_optimizer import ServerOptimizer, server_optimizer
from paceline.strategy.strategy import Strategy
from paceline.strategy.turns import Turns
from paceline.strategy.whole_vectors import needs_whole_vectors

BLOCK = 1 << 16


class Updater:
    def __init__(
        self, strategy: Strategy, layout: Layout, workers: int, threads: int = 1, device: torch.device | str = "cpu"
    ) -> None:
        self.strategy, self.layout, self.device = strategy, layout, device
        self.exchange, self.correction = strategy.make_exchange, strategy.make_correction
        self._gradient = GradientMean(strategy)
        self.passes = workers if strategy.full_pass_per_worker else 1
        """How often an epoch goes over the data."""
        self.optimizers: list[ServerOptimizer] = [
            server_optimizer(strategy, phase, layout.torch_dtype) for phase in layout.phases
        ]
        self.decoding = Decoding(strategy, layout, device)
        self.fragments, self.encoded = self.decoding.fragments, self.decoding.encoded
        clips = [optimizer.rule.clip_norm for optimizer in self.optimizers]
        self._clips = clips if any(clips) else []
        whole = needs_whole_vectors(strategy, self.optimizers)
        self._whole = self._zeros(layout.parameters) if whole else None
        """The mean of all payloads, where something needs it whole before parameters change."""
        self._ends = layout.phase_ends()
        self._blocks = self._divided()
        threads = max(1, min(threads, len(self._blocks)))
        longest = max((block.length for block in self._blocks), default=1)
        self._scratch = [self._make_scratch(longest) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads, "paceline-update") if threads > 1 else None
        self._views: dict[tuple[int, int], tuple[State, dict[str, Tensor]]] = {}
        self._rules = [optimizer.rule for optimizer in self.optimizers]
        self.takes_payloads = self.correction is None and not self.decoding.is_needed
        """Whether one payload alone is the gradient as it is."""
        self.turns = Turns.of(strategy, layout, workers)
        always = all(phase.rule.epochs == (0, None) for phase in layout.phases)
        self._all_train = always and self.turns.count == 1 and self.fragments is None
        """Whether every phase is trained in every update."""
        self._every_block = range(len(self._blocks))

    def _make_scratch(self, length: int) -> Scratch:
        gradient, part, room = (self._zeros(length) for _ in range(3))
        if self.correction is None or self.correction.prepare is None:
            return Scratch(gradient, part, room)
        return Scratch(gradient, part, room, (self._zeros(length), self._zeros(length)))

    def _divided(self) -> list[Block]:
        """An optimizer that needs whole vectors gets its phase whole; no block is of two fragments."""
        blocks = []
        cuts = [] if self.fragments is None else [self.fragments.piece(n).stop for n in range(self.fragments.count)]
        for phase, (first, last) in enumerate(self._ends):
            length = BLOCK if self.optimizers[phase].elementwise else max(1, last - first)
            starts = sorted({*range(first, last, length), *(cut for cut in cuts if first < cut < last)})
            for start, end in zip(starts, [*starts[1:], last], strict=False):
                in_phase = None if end - start == last - first else slice(start - first, end - first)
                piece = None if end - start == self.layout.size else slice(start, end)
                blocks.append(Block(phase, end - start, piece, in_phase, end == last))
        return blocks

    # The state that belongs to a version of the parameters

    def initial_state(self) -> dict[str, Tensor]:
        """Of the optimizers and of the correction at the server: flat vectors, and scalars without a dimension."""
        state = {
            f"{phase}.{name}": tensor.to(self.device)
            for phase, optimizer in enumerate(self.optimizers)
            for name, tensor in optimizer.initial_state().items()
        }
        names = self.correction.server_state if self.correction is not None else ()
        return {**state, **{f"correction.{name}": self._zeros(self.layout.parameters) for name in names}}

    @property
    def correction_state_names(self) -> tuple[str, ...]:
        return self.correction.state if self.correction is not None else ()

    def initial_correction_state(self) -> dict[str, Tensor]:
        """What the correction keeps for each group: flat vectors of all parameters, zero at first."""
        return {name: self._zeros(self.layout.parameters) for name in self.correction_state_names}

    def _zeros(self, length: int) -> Tensor:
        return torch.zeros(length, dtype=self.layout.torch_dtype, device=self.device)

    @property
    def needs_fetched(self) -> bool:
        """Whether an update looks at what its payloads were computed on."""
        return self.correction is not None and self.correction.needs_fetched

    # An update

    def prepare(self, payload: Tensor, before: State, after: State) -> Tensor | None:
        """The part of an update by one payload that needs no parameters: its result is for `GroupContribution`."""
        if self.correction is None or self.correction.prepare is None or self.decoding.is_needed:
            return None
        gradient = payload[: self.layout.parameters] if self.layout.buffers else payload
        return self.correction.prepare(gradient, before, after, self._rooms)

    @functools.cached_property
    def _rooms(self) -> tuple[Tensor, Tensor]:
        """Memory for a correction of the whole vector."""
        return self._zeros(self.layout.parameters), self._zeros(self.layout.parameters)

    def gradient_of(self, order: Apply, given: Sequence[GroupContribution], old: Tensor, out: Tensor) -> None:
        """The first half of an update: the gradient of all payloads, corrected, and the buffers' mean go to `out`.

        That may be the place of one of the payloads.
        """
        if self.decoding.is_needed:
            given = self.decoding.all(given, order.turn)
        parameters = out
        if self.layout.buffers:
            parameters = out[: self.layout.parameters]
            self._mean_of_buffers(given, out)
        rate = self._rates(order.epoch, order.closed)[self._blocks[self._trained(order.epoch, order.turn)[0]].phase]
        self._mean_of_all(order, given, old, {}, {}, rate, parameters)

    def update_by(
        self, gradient: Tensor, epoch: int, closed: int, parameters: Tensor, state: State, turn: int = 0
    ) -> None:
        """The other half: parameters and state change in place by what `gradient_of` has found."""
        if self.layout.buffers:
            count = self.layout.parameters
            parameters[count:].copy_(gradient[count:])
        if self._whole is not None:
            gradient = self._clip(self._whole.copy_(gradient[: self.layout.parameters]), epoch)
        rates, room = self._rates(epoch, closed), self._scratch[0].room
        if self._all_train and len(self._blocks) == 1 and self._blocks[0].piece is None:
            mine = self._view(0, state)
            self.optimizers[0].update(parameters, gradient, parameters, mine, mine, rates[0], room)
            return
        for number in self._trained(epoch, turn):
            block = self._blocks[number]
            piece = cut(gradient, block.piece)
            self._update(number, piece, parameters, parameters, state, state, rates[block.phase], room)

    def apply(
        self, order: Apply, given: Sequence[GroupContribution], old: Tensor, new: Tensor, before: State, after: State
    ) -> None:
        """Writes the parameters after the update to `new`; `old` and `new` may be one tensor, as may the states."""
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self.apply(order, given, old, new, before, after)
        rates = self._rates(order.epoch, order.closed)
        if self.decoding.is_needed:
            given = self.decoding.all(given, order.turn)
        mean, trained = None, self._trained(order.epoch, order.turn)
        if len(trained) < len(self._blocks):
            self._carry_over(given, old, new, before, after)
        if self._whole is not None:
            rate = rates[self._blocks[trained[0]].phase]
            mean = self._mean_of_all(order, given, old, before, after, rate, self._whole)
            self._clip(mean, order.epoch)

        def work(numbers: Sequence[int], scratch: Scratch) -> None:
            for number in numbers:
                block = self._blocks[number]
                rate = rates[block.phase]
                if mean is not None:
                    gradient = cut(mean, block.piece)
                else:
                    gradient = self._gradient.of(order, given, old, block, scratch, before, after, rate)
                self._update(number, gradient, old, new, before, after, rate, scratch.room)

        if self._pool is None:
            work(trained, self._scratch[0])
        else:
            count = len(self._scratch)
            shares = [trained[first::count] for first in range(count)]
            list(self._pool.map(torch.no_grad()(work), shares, self._scratch))
        if self.layout.buffers:
            self._mean_of_buffers(given, new)
        return None

    def _trained(self, epoch: int, turn: int) -> Sequence[int]:
        """The blocks of the phases that are trained in an epoch, or of the phase or fragment whose turn it is."""
        if self._all_train:
            return self._every_block
        if self.turns.count > 1:
            phase = [number for number, rule in enumerate(self._rules) if rule.trains_in(epoch)][turn]
            return [number for number, block in enumerate(self._blocks) if block.phase == phase]
        trained = [number for number, block in enumerate(self._blocks) if self._rules[block.phase].trains_in(epoch)]
        if self.fragments is None:
            return trained
        piece = self.fragments.piece(turn)
        return [number for number in trained if piece.start <= self._blocks[number].first < piece.stop]

    def _carry_over(
        self, given: Sequence[GroupContribution], old: Tensor, new: Tensor, before: State, after: State
    ) -> None:
        """What is not trained in an epoch stays as it was; what is trained is written afterwards."""
        count = self.layout.parameters
        pairs = [(old[:count], new[:count]), *((before[name], after[name]) for name in after)]
        pairs += [(one.before[name], one.after[name]) for one in given if one.prepared is None for name in one.after]
        for was, becomes in pairs:
            if becomes.data_ptr() != was.data_ptr():
                becomes.copy_(was)

    def _rates(self, epoch: int, closed: int) -> list[float]:
        step = closed // self.passes
        return [self.layout.rate(rule, epoch, step) if rule.trains_in(epoch) else 0.0 for rule in self._rules]

    def _clip(self, gradient: Tensor, epoch: int) -> Tensor:
        for optimizer, (first, last), clip in zip(self.optimizers, self._ends, self._clips, strict=False):
            if clip and optimizer.rule.trains_in(epoch):
                clip_norm_([gradient[first:last]], clip)
        return gradient

    def _update(
        self, number: int, gradient: Tensor, old: Tensor, new: Tensor, before: State, after: State, rate: float,
        room: Tensor,
    ) -> None:  # fmt: skip
        block = self._blocks[number]
        mine = then = self._view(number, after)
        if before is not after:
            mine = self._view(number, before)
        if not block.is_last and before is not after:
            then = {name: t if t.dim() else mine[name].clone() for name, t in then.items()}
        elif not block.is_last:
            mine = then = {name: t if t.dim() else t.clone() for name, t in then.items()}
        source = cut(old, block.piece)
        target = source if new is old else cut(new, block.piece)
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

    def _mean_of_all(
        self, order: Apply, given: Sequence[GroupContribution], old: Tensor, before: State, after: State, rate: float,
        out: Tensor,
    ) -> Tensor:  # fmt: skip
        count = self.layout.parameters
        everything = Block(0, count, slice(0, count) if self.layout.buffers else None, None, True)
        part = torch.empty_like(out) if len(given) > 1 else out
        rooms = self._rooms if self.correction is not None and self.correction.prepare is not None else None
        mean = self._gradient.of(order, given, old, everything, Scratch(out, part, part, rooms), before, after, rate)
        return mean if mean is out else out.copy_(mean)

    def _mean_of_buffers(self, given: Sequence[GroupContribution], new: Tensor) -> None:
        """Buffers are no sums: their mean in a group, and of several groups the last."""
        values = [payload.values[-self.layout.buffers :] for payload in given[-1].payloads]
        mean_of_buffers(values, new[self.layout.parameters : self.layout.size])
