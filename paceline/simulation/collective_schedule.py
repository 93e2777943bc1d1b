"""A step of one process in virtual time whose layers need collectives: computing and the link are two queues.

With FSDP2 a layer's parameters are gathered before its passes and its gradients are scattered after its backward pass.
Where collectives overlap, the next gather begins with the computing before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.trace import Span, Trace


@dataclass(frozen=True)
class LayerPass:
    """A pass through one layer, and the collectives before and after it."""

    layer: str
    direction: str
    """forward or backward."""
    compute_s: float
    before_s: float = 0.0
    after_s: float = 0.0


@dataclass(frozen=True)
class CollectiveOutcome:
    seconds: float
    compute_s: float
    trace: Trace

    @property
    def exposed_s(self) -> float:
        """The time of collectives that computing does not hide."""
        return self.seconds - self.compute_s


def simulate_passes(passes: Sequence[LayerPass], *, overlap: bool) -> CollectiveOutcome:
    """`passes` in their order. Without `overlap` a process computes or exchanges, not both at a time."""
    spans: list[Span] = []
    link_free_s = computed_s = before_began_s = 0.0
    pending: LayerPass | None = None

    def exchange(one: LayerPass, seconds: float, ready_s: float) -> float:
        nonlocal link_free_s
        start_s = max(link_free_s, ready_s)
        link_free_s = start_s + seconds
        spans.append(Span("link", "communicate", start_s, link_free_s, layer=one.layer))
        return link_free_s

    for one in passes:
        if pending is not None and not overlap:
            computed_s = exchange(pending, pending.after_s, computed_s)
            pending = None
        ready_s = computed_s
        if one.before_s:
            ready_s = exchange(one, one.before_s, before_began_s if overlap else computed_s)
        if pending is not None:
            exchange(pending, pending.after_s, computed_s)
        before_began_s = max(computed_s, ready_s)
        computed_s = before_began_s + one.compute_s
        if one.compute_s:
            spans.append(Span("process", one.direction, before_began_s, computed_s, layer=one.layer))
        pending = one if one.after_s else None
    if pending is not None:
        exchange(pending, pending.after_s, computed_s)
    whole_s = max(computed_s, link_free_s)
    trace = Trace(tuple(sorted(spans, key=lambda span: (span.start_s, span.who))))
    return CollectiveOutcome(whole_s, sum(one.compute_s for one in passes), trace)
