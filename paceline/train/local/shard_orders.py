"""How the shards of a server learn what an update is made of: words in shared memory that name payloads in their slots.

They are: update, epoch, closed, contributions. Of each: group, staleness, which of the correction's two states is that
before and which that after, payloads. Of each: worker, sequence, samples, steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.strategy.instructions import Apply, Contribution
from paceline.strategy.server import Given, Payload
from paceline.train.local.memory import Memory
from paceline.train.local.sums import with_numbers
from paceline.train.local.updating import backup_of


def write(memory: Memory, order: Apply, given: Sequence[Given]) -> None:
    words = [order.update, order.epoch, order.closed, len(given)]
    for contribution, one in zip(order.contributions, given, strict=True):
        kept = memory.corrections[contribution.group] if memory.corrections else [one.kept]
        before, after = (int(state is not kept[0]) for state in (one.kept, one.kept_after))
        words += contribution.group, contribution.staleness, before, after, len(one.payloads)
        keys = with_numbers(memory, contribution.payloads)
        for (worker, sequence), payload in zip(keys, one.payloads, strict=True):
            words += worker, sequence, payload.samples, payload.steps
    memory.order[: len(words)] = words


def read(memory: Memory) -> tuple[Apply, list[Given]]:
    """The same order, with the tensors as they lie in the memory of this process."""
    words = iter(memory.order.tolist())
    update, epoch, closed, count = (next(words) for _ in range(4))
    contributions, given = [], []
    for _ in range(count):
        group, staleness, before, after, members = (next(words) for _ in range(5))
        keys, payloads = [], []
        for _ in range(members):
            worker, sequence, samples, steps = (next(words) for _ in range(4))
            keys.append((worker, sequence))
            payloads.append(Payload(memory.payloads[worker][sequence % 2], samples, steps))
        contributions.append(Contribution(group, tuple(keys), staleness))
        kept = memory.corrections[group] if memory.corrections else [{}, {}]
        given.append(Given(payloads, backup_of(memory, contributions[-1]), kept[before], kept[after]))
    return Apply(update, tuple(contributions), epoch, closed), given
