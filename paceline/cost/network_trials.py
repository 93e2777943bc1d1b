"""Operations timed where they run: layers of measured networks that are one operation, as further trials.

Trials called in a loop find their data in the caches. In a network other operations ran before, and its sizes are those
that networks have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from paceline.cost.caches import Costed
from paceline.cost.curve import Trial
from paceline.cost.families import IMAGE_FAMILIES
from paceline.cost.model import HALF
from paceline.cost.operation import Operation
from paceline.cost.reference_run import ReferenceRun

MAX_REST = 0.15
"""Share of a layer's predicted time that other operations than its largest may take; else who took the measured time
is not known."""


def network_trials(runs: Sequence[ReferenceRun]) -> dict[tuple[str, str], list[Trial]]:
    """Trials by the type of their numbers, `float32` or `bfloat16`, and the memory format of images."""
    found: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for run in runs:
        operations: dict[tuple[str, str], list[Costed]] = defaultdict(list)
        for costed in run.costed:
            operations[costed.operation.row, costed.operation.direction].append(costed)
        for layer, both in run.times.layers.items():
            for direction, took_s in zip(("forward", "backward"), both, strict=True):
                own = operations.get((layer, direction))
                if not own:
                    continue
                largest = max(own, key=lambda costed: costed.seconds)
                whole_s = sum(costed.seconds for costed in own)
                rest_s = whole_s - largest.seconds
                if rest_s < MAX_REST * min(took_s, whole_s):
                    operation = largest.operation
                    kind = "bfloat16" if operation.dtype in HALF else "float32"
                    layout = "channels_last" if operation.channels_last and is_image(operation) else "contiguous"
                    found[kind, layout].append(Trial(operation.family, operation.sizes, took_s - rest_s))
    return found


def is_image(operation: Operation) -> bool:
    """Whether the time of the operation depends on the memory format."""
    return operation.family.removesuffix("_weight").removesuffix("_backward") in IMAGE_FAMILIES
