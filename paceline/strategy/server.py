"""What the server computes: payloads become an update. No process, no clock; the same bits whoever calls it.

It goes through the vectors in pieces that stay in the cache, so a correction costs arithmetic but hardly any
traffic to memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.step.optimizers import Rule, initial_state, update
from paceline.strategy.corrections import parse_correction
from paceline.strategy.instructions import Apply
from paceline.strategy.layout import Layout
from paceline.strategy.server_rule import server_rule
from paceline.strategy.strategy import Strategy

BLOCK = 1 << 16

State = Mapping[str, Tensor]


class Payload(NamedTuple):
    """What a worker pushed."""

    values: Tensor
    samples: int
    steps: int


class Given(NamedTuple):
    """What a group gives to an update, with what is kept for that group."""

    payloads: Sequence[Payload]
    """In the order in which the update names them."""
    backup: Tensor | None
    """What the payloads were computed on; only a correction looks at it."""
    kept: State
    """The correction's state before the update, and after it; they may be the same tensors."""
    kept_after: State


class Server:
    def __init__(self, strategy: Strategy, layout: Layout, workers: int, piece: slice | None = None) -> None:
        """With a `piece` of the parameters it writes only that, of everything; buffers belong to the last piece."""
        self.strategy, self.layout = strategy, layout
        self.passes = workers if strategy.own_pass else 1
        """How often an epoch goes over the data."""
        self.rules = [server_rule(strategy, phase.rule) for phase in layout.phases]
        self.correction = parse_correction(strategy.correction)
        kind = layout.torch_dtype
        longest = max(min(BLOCK, layout.parameters), 1)
        self._gradient = torch.zeros(longest, dtype=kind)
        self._part = torch.zeros(longest, dtype=kind)
        self._rate = torch.zeros((), dtype=kind)
        whole = self.correction is not None and not self.correction.elementwise
        self._corrected = torch.zeros(layout.parameters, dtype=kind) if whole else None
        begin, end = (0, layout.parameters) if piece is None else (piece.start, piece.stop)
        assert not (whole and end - begin < layout.parameters), "this correction needs whole vectors"
        self._blocks = [
            (index, first, min(first + BLOCK, last, end))
            for index, (phase, last) in enumerate(self._phases())
            for first in range(max(phase, begin), min(last, end), BLOCK)
        ]
        self._has_buffers = layout.buffers > 0 and end == layout.parameters
        self._begins = [first for first, _ in self._phases()]
        self._tables = [_State(rule, f"{index}.") for index, rule in enumerate(self.rules)]
        plain = len(self._tables) == 1 and self._tables[0].plain
        self.simple = plain and self.correction is None and not layout.buffers
        """Whether an update with a single payload is a single operation."""

    def initial_state(self) -> dict[str, Tensor]:
        """The optimizers' state before the first update, by name: flat vectors, and counts without a dimension."""
        zero = torch.zeros(0, dtype=self.layout.torch_dtype)
        made = {}
        for table, (first, last) in zip(self._tables, self._phases(), strict=True):
            for name, tensor in initial_state(table.rule, zero).items():
                made[table.prefix + name] = tensor.new_zeros(last - first) if tensor.dim() else tensor
        return made

    @property
    def kept_names(self) -> tuple[str, ...]:
        """The flat vectors of `parameters` numbers that the correction keeps for each group, zero at first."""
        return self.correction.state if self.correction is not None else ()

    @property
    def needs_backup(self) -> bool:
        """Whether an update looks at what its payloads were computed on."""
        return self.correction is not None and self.strategy.correction != "staleness"

    def initial_kept(self) -> dict[str, Tensor]:
        return {name: torch.zeros(self.layout.parameters, dtype=self.layout.torch_dtype) for name in self.kept_names}

    @torch.no_grad()
    def apply(
        self, order: Apply, given: Sequence[Given], old: Tensor, new: Tensor, state: State, state_after: State
    ) -> None:
        """Writes the parameters after the update to `new`; `old` and `new` may be one tensor, as may the states."""
        step = order.closed // self.passes
        rates = [self.layout.rate(rule, order.epoch, step) for rule in self.rules]
        if self._corrected is not None:
            self._correct_whole(order, given, old, self._corrected)
        for index, first, last in self._blocks:
            piece = slice(first, last)
            gradient, own = self._mean(order, given, old, piece)
            table, target = self._tables[index], new[piece]
            if table.plain:
                torch.sub(old[piece], gradient, alpha=rates[index], out=target)
                continue
            if new is not old:
                target.copy_(old[piece])
            if not own:  # the payload itself, which a rule would change
                gradient = self._gradient[: last - first].copy_(gradient)
            self._rate.fill_(rates[index])
            begin = self._begins[index]
            own_state = table.piece(state, state_after, first - begin, last - begin)
            update(table.rule, target, gradient, own_state, self._rate)
        self._mean_of_buffers(given, new)

    def apply_simply(self, payload: Tensor, epoch: int, closed: int, old: Tensor, new: Tensor) -> None:
        """What `apply` does with a single payload where that is `simple`; no gradient is to be recorded."""
        rate = self.layout.rate(self.rules[0], epoch, closed // self.passes)
        torch.sub(old, payload, alpha=rate, out=new)

    def _mean(self, order: Apply, given: Sequence[Given], old: Tensor, piece: slice) -> tuple[Tensor, bool]:
        """What the optimizer is given for a piece, and whether it may be overwritten."""
        if self._corrected is not None:
            return self._corrected[piece], True
        if len(given) == 1:
            return self._of_group(order, 0, given[0], old, piece, self._gradient)
        total = self._gradient[: piece.stop - piece.start].zero_()
        for number, one in enumerate(given):
            total.add_(self._of_group(order, number, one, old, piece, self._part)[0])
        return total.div_(len(given)), True

    def _of_group(
        self, order: Apply, number: int, one: Given, old: Tensor, piece: slice, scratch: Tensor
    ) -> tuple[Tensor, bool]:
        """The mean of a group's payloads, corrected, and whether it may be overwritten, as a payload may not."""
        mean, own = self._mean_of_group(one.payloads, piece, scratch)
        if self.correction is None:
            return mean, own
        if not own and not self.correction.elementwise:  # one of the user's own may overwrite what it is given
            mean, own = scratch[: len(mean)].copy_(mean), True
        kept = {}
        for name in self.correction.state:
            before, after = one.kept[name][piece], one.kept_after[name][piece]
            kept[name] = after if one.kept_after[name] is one.kept[name] else after.copy_(before)
        w = old[piece]
        backup = w if one.backup is None else one.backup[piece]
        corrected = self.correction.function(mean, w, backup, order.contributions[number].staleness, kept)
        return corrected, own or corrected is not mean

    def _mean_of_group(self, payloads: Sequence[Payload], piece: slice, scratch: Tensor) -> tuple[Tensor, bool]:
        """Gradients count by their samples a step, so that a mean equals the gradient of the joined batch."""
        if len(payloads) == 1:
            return payloads[0].values[piece], False
        weights = [1.0] * len(payloads)
        if self.strategy.exchange == "gradient":
            weights = [p.samples / p.steps for p in payloads]
        total = sum(weights)
        mean = torch.mul(payloads[0].values[piece], weights[0] / total, out=scratch[: piece.stop - piece.start])
        for payload, weight in zip(payloads[1:], weights[1:], strict=True):
            mean.add_(payload.values[piece], alpha=weight / total)
        return mean, True

    def _correct_whole(self, order: Apply, given: Sequence[Given], old: Tensor, corrected: Tensor) -> None:
        """A correction of the user's own sees whole vectors: it may look at a norm."""
        everything = slice(0, self.layout.parameters)
        total = torch.zeros_like(corrected)
        for number, one in enumerate(given):
            total.add_(self._of_group(order, number, one, old[everything], everything, torch.empty_like(corrected))[0])
        torch.div(total, len(given), out=corrected)

    def _mean_of_buffers(self, given: Sequence[Given], new: Tensor) -> None:
        """Buffers are no sums: their mean in a group, and of several groups the last."""
        if self._has_buffers:
            piece = slice(self.layout.parameters, self.layout.size)
            payloads = given[-1].payloads
            mean = new[piece].copy_(payloads[0].values[piece])
            for count, payload in enumerate(payloads[1:], 2):
                mean.add_(payload.values[piece] - mean, alpha=1 / count)

    def _phases(self) -> list[tuple[int, int]]:
        """Where each phase's parameters begin and end."""
        phases, first = [], 0
        for phase in self.layout.phases:
            phases.append((first, first + phase.size))
            first += phase.size
        return phases


class _State:
    """The optimizer state of one phase within tables of all phases' state."""

    def __init__(self, rule: Rule, prefix: str) -> None:
        self.rule, self.prefix = rule, prefix
        self.names = tuple(initial_state(rule, torch.zeros(0)))
        self.plain = rule.optimizer == "sgd" and not (rule.l1 or rule.l2)
        """Whether a single operation does it."""

    def piece(self, before: State, after: State, first: int, last: int) -> dict[str, Tensor]:
        """The state for a piece, ready to be updated in place. Counts begin anew for every piece but the last."""
        found = {}
        for name in self.names:
            old, new = before[self.prefix + name], after[self.prefix + name]
            if old.dim():
                found[name] = new[first:last] if new is old else new[first:last].copy_(old[first:last])
            else:
                found[name] = old.clone() if last < self._length(before) else new.copy_(old)
        return found

    def _length(self, state: State) -> int:
        return max(len(state[self.prefix + name]) for name in self.names if state[self.prefix + name].dim())
