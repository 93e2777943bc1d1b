"""Where workers make updates themselves: a new version is written into the draft of who makes it, then carried over.

There is one vector of parameters then, and every update goes over it. Two in turn would cost three times as much: who
writes a cache line that another core has read in between has to ask for it. One word publishes a version, as elsewhere;
from then on the draft is what counts until it is carried over. Whoever has the pen next finishes what a dead one
began.
"""

from __future__ import annotations

from paceline.train.local import made
from paceline.train.local.memory import Memory
from paceline.train.local.words import Control

_WHO_BITS = 16


def publish(memory: Memory, version: int, who: int) -> None:
    """The version is whole in somebody's draft: with this it is the newest."""
    control = memory.control
    control[Control.DRAFT] = version << _WHO_BITS | who
    control[Control.VERSION] = version
    _carry_over(memory, version, who)


def finish(memory: Memory) -> None:
    """Carries over what was published by somebody who then died."""
    control = memory.control
    version, who = control[Control.DRAFT] >> _WHO_BITS, control[Control.DRAFT] & (1 << _WHO_BITS) - 1
    if version and version == control[Control.VERSION]:
        _carry_over(memory, version, who)


def _carry_over(memory: Memory, version: int, who: int) -> None:
    draft = memory.drafts[who]
    memory.parameters[0].copy_(draft.parameters)
    for name, tensor in draft.state.items():
        memory.states[0][name].copy_(tensor)
    if draft.kept:
        worker = made.read(memory, version)[0]  # who is a group by itself
        for name, tensor in draft.kept.items():
            memory.corrections[worker][0][name].copy_(tensor)
    memory.control[Control.DRAFT] = 0
