"""Where the backward pass will go from one row to another, found while the forward pass runs.

On a CPU autograd runs the nodes of a graph in the opposite order of their creation. So the backward pass of a module
call begins at the last node made before the call ended, and that of the module around it resumes at the last node made
before the call began. These are nodes of the call's outputs and inputs, at hand when marks at modules are set: nothing
has to search the graph, which would leave the caches cold and slow down what is measured.

Whether that is all is found out once: in its first iteration every backward pass is searched as well. Those in which a
row changes anywhere else (tied weights, several graphs, calls whose last result is not used) are always searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from paceline.measurement.node_order import is_leaf


class RowChanges:
    def __init__(self) -> None:
        self.last = 0
        """The sequence number at the last boundary of a call."""
        self.checked: dict[int, int | None] = {}
        """For each backward pass of an iteration the calls before it, as a hash; None: it has to be searched."""
        self.used = False
        """Whether there is a pass that has not to be searched."""
        self._rows: dict[int, str] = {}
        """The row that begins at each node found in this iteration, by the node's sequence number."""
        self._calls = 0
        self._backwards = 0

    def begin(self, number: int) -> None:
        """An iteration begins; `number` is the next sequence number."""
        self.last, self._calls, self._backwards, self._rows = number, 0, 0, {}

    def crossed(self, number: int, row: str, tensors: Any, stamp: Callable[..., None]) -> None:
        """A call begins or ends, and `number` is next: what was made since the last boundary belongs to `row`.

        `tensors` are those that cross it. `stamp` is called when the backward pass comes to their nodes.
        """
        if number <= self.last:
            return
        first, self.last = self.last, number
        self._calls = hash((self._calls, row))
        for tensor in (tensors,) if isinstance(tensors, Tensor) else _tensors(tensors):
            node = tensor.grad_fn
            if node is not None and first <= node._sequence_nr() < number:
                self._rows[node._sequence_nr()] = row
                if self.used:
                    node.register_prehook(stamp)

    def suffice(self) -> bool:
        """Whether the backward pass that begins now has all its marks."""
        return self.checked.get(self._backwards) == self._calls

    def searched(self, found: Iterable[tuple[Any, str]]) -> None:
        """The backward pass that begins now was searched: these are the nodes at which a row begins, and the rows."""
        if self._backwards not in self.checked:
            known = all(
                not is_leaf(node) and (node._sequence_nr() >= self.last or self._rows.get(node._sequence_nr()) == row)
                for node, row in found
            )
            self.checked[self._backwards] = self._calls if known else None
            self.used |= known

    def end_backward(self) -> None:
        self._backwards += 1


def _tensors(given: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
