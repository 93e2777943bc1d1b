"""Whose a kernel is, told by its name and by how many of that name came before it in the iteration.

A network launches the same kernels in every iteration, so marks are needed only once; what follows is traced
without them, at a fraction of the cost. A captured graph runs them in the same order again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from paceline.measurement.kernels import Kernel
from paceline.measurement.tape import OUTSIDE, Owner

UNKNOWN: Owner = ("forward", "(captured, not told apart)")


@dataclass(frozen=True)
class KernelOrder:
    owners: dict[str, list[Owner]]
    """By kernel name, in the order of an iteration."""

    @staticmethod
    def learnt(kernels: list[Kernel], whose: list[tuple[int, Owner]]) -> KernelOrder | None:
        """From iterations whose kernels' owners are known; None when no two of them were alike."""
        by_iteration: dict[int, dict[str, list[Owner]]] = defaultdict(lambda: defaultdict(list))
        for kernel, (number, owner) in zip(kernels, whose, strict=True):
            by_iteration[number][kernel.name].append(owner)
        seen: list[dict[str, list[Owner]]] = []
        for number in sorted(by_iteration, reverse=True):
            if by_iteration[number] in seen:
                return KernelOrder({name: list(owners) for name, owners in by_iteration[number].items()})
            seen.append(by_iteration[number])
        return None

    def assign(self, kernels: list[Kernel]) -> list[Owner] | None:
        """The owners of one iteration's kernels, in the order of their launch; None when they were others."""
        counts = Counter(kernel.name for kernel in kernels)
        if counts != Counter({name: len(owners) for name, owners in self.owners.items()}):
            return None
        seen: Counter[str] = Counter()
        found = []
        for kernel in kernels:
            found.append(self.owners[kernel.name][seen[kernel.name]])
            seen[kernel.name] += 1
        return found

    def assign_captured(self, kernels: list[Kernel], beside: list[Owner], iterations: int) -> list[tuple[int, Owner]]:
        """Iteration and owner of the kernels of `iterations` that ran as captured graphs.

        A graph's kernels share one launch, and what it adds to a step comes after the step's own. What is launched
        one by one beside it is `beside`'s. Kernels that capturing exchanged for others are not told apart.
        """
        sizes = Counter(kernel.launched for kernel in kernels)
        inside = Counter(kernel.name for kernel in kernels if sizes[kernel.launched] > 1)
        known = {
            name: count // iterations
            for name, count in inside.items()
            if count % iterations == 0 and count // iterations >= len(self.owners.get(name, ()))
        }
        seen: Counter[str] = Counter()
        found: list[tuple[int, Owner]] = []
        number = 0
        for kernel, otherwise in zip(kernels, beside, strict=True):
            if sizes[kernel.launched] == 1:
                found.append((number, otherwise))
            elif kernel.name not in known:
                found.append((number, UNKNOWN))
            else:
                number, place = divmod(seen[kernel.name], known[kernel.name])
                seen[kernel.name] += 1
                owners = self.owners.get(kernel.name, [])
                found.append((number, owners[place] if place < len(owners) else ("forward", OUTSIDE)))
        return found
