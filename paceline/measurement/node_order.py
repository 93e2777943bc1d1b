"""The order in which autograd runs the nodes of a graph on a CPU, known before it runs them.

Autograd runs, of the nodes whose gradients are complete, the one with the highest sequence number. Nodes that
accumulate gradients all have the highest there is, so those that are complete at the same time run one after another,
in an order that is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

LEAF = (1 << 64) - 1
"""The sequence number of nodes that accumulate gradients."""


def nodes_from(roots: Iterable[Any]) -> list[Any]:
    """All nodes of the graph, each after the nodes that its gradients go to."""
    found: dict[Any, None] = {}
    todo = [(root, False) for root in roots if root is not None]
    while todo:
        node, done = todo.pop()
        if done:
            found.setdefault(node)
        elif node not in found:
            todo.append((node, True))
            todo += [(after, False) for after, _ in node.next_functions if after is not None and after not in found]
    return list(found)


def nodes_towards(nodes: Iterable[Any], leaves: Iterable[Any]) -> list[Any]:
    """The nodes that run for the gradients of some leaves, without those of the leaves; `nodes` are in the order of
    `nodes_from`."""
    wanted = set(map(id, leaves))
    found: dict[Any, None] = {}
    towards: set[Any] = set()
    for node in nodes:
        if is_leaf(node):
            if id(node.variable) in wanted:
                towards.add(node)
        elif any(after in towards for after, _ in node.next_functions):
            towards.add(node)
            found[node] = None
    return list(found)


def is_leaf(node: Any) -> bool:
    return node._sequence_nr() == LEAF and hasattr(node, "variable")


def running_order(roots: Iterable[Any], nodes: Iterable[Any]) -> list[list[Any]]:
    """The `nodes` that run, in order; those of one list in any order."""
    known = set(nodes)
    missing = Counter(after for node in known for after, _ in node.next_functions if after in known)
    ready: list[tuple[int, int, Any]] = []
    for root in dict.fromkeys(roots):
        if root in known and not missing[root]:
            heappush(ready, (-root._sequence_nr(), len(ready), root))
    order, pushed = [], len(ready)
    while ready:
        number, _, node = heappop(ready)
        together = [node]
        while ready and ready[0][0] == number:
            together.append(heappop(ready)[2])
        order.append(together)
        for node in together:
            for after, _ in node.next_functions:
                if after in known:
                    missing[after] -= 1
                    if not missing[after]:
                        pushed += 1
                        heappush(ready, (-after._sequence_nr(), pushed, after))
    return order


def nodes_after_others(roots: Sequence[Any], nodes: Iterable[Any], row_of: Callable[[Any], Hashable]) -> list[Any]:
    """Of the nodes that run, those that may run directly after one of another row; the first ones, too."""
    found: list[Any] = []
    before: set[Hashable] = set()
    for together in running_order(roots, nodes):
        rows = {row_of(node) for node in together}
        if not before or len(before | rows) > 1:
            found += together
        before = rows
    return found
