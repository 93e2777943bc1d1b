"""Attributes a kernel by its name and by how many kernels of that name came before it in the iteration.

A network launches the same kernels in every iteration, so marks are needed only once; later iterations are traced
without them, at a fraction of the cost. A captured graph runs its kernels in the same order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from paceline.measurement.kernels import Kernel
from paceline.measurement.mark_log import OUTSIDE, SpanKey

UNKNOWN: SpanKey = ("forward", "(captured, not attributed)")


@dataclass(frozen=True)
class KernelOrder:
    keys: dict[str, list[SpanKey]]
    """By kernel name, in the order of an iteration."""

    @staticmethod
    def learned(kernels: list[Kernel], keys: list[tuple[int, SpanKey]]) -> KernelOrder | None:
        """Learns the order from iterations with known span keys; None if no two iterations were alike."""
        by_iteration: dict[int, dict[str, list[SpanKey]]] = defaultdict(lambda: defaultdict(list))
        for kernel, (number, key) in zip(kernels, keys, strict=True):
            by_iteration[number][kernel.name].append(key)
        seen: list[dict[str, list[SpanKey]]] = []
        for number in sorted(by_iteration, reverse=True):
            if by_iteration[number] in seen:
                return KernelOrder({name: list(keys) for name, keys in by_iteration[number].items()})
            seen.append(by_iteration[number])
        return None

    def assign(self, kernels: list[Kernel]) -> list[SpanKey] | None:
        """The span keys of one iteration's kernels in launch order; None if the kernels are not the known ones."""
        counts = Counter(kernel.name for kernel in kernels)
        if counts != Counter({name: len(keys) for name, keys in self.keys.items()}):
            return None
        seen: Counter[str] = Counter()
        found = []
        for kernel in kernels:
            found.append(self.keys[kernel.name][seen[kernel.name]])
            seen[kernel.name] += 1
        return found

    def assign_captured(
        self, kernels: list[Kernel], by_launch: list[SpanKey], iterations: int
    ) -> list[tuple[int, SpanKey]]:
        """Iteration and span key of the kernels of `iterations` captured iterations.

        All kernels of a graph share one launch, and kernels that capturing adds come after the step's own. Kernels
        launched outside the graph take their key from `by_launch`. Kernels that capturing replaced are `UNKNOWN`.
        """
        sizes = Counter(kernel.launched for kernel in kernels)
        inside = Counter(kernel.name for kernel in kernels if sizes[kernel.launched] > 1)
        known = {
            name: count // iterations
            for name, count in inside.items()
            if count % iterations == 0 and count // iterations >= len(self.keys.get(name, ()))
        }
        seen: Counter[str] = Counter()
        found: list[tuple[int, SpanKey]] = []
        number = 0
        for kernel, launch_key in zip(kernels, by_launch, strict=True):
            if sizes[kernel.launched] == 1:
                found.append((number, launch_key))
            elif kernel.name not in known:
                found.append((number, UNKNOWN))
            else:
                number, place = divmod(seen[kernel.name], known[kernel.name])
                seen[kernel.name] += 1
                keys = self.keys.get(kernel.name, [])
                found.append((number, keys[place] if place < len(keys) else ("forward", OUTSIDE)))
        return found
