"""What is known of the data: read from their source, or as described, with synthetic samples to stand in for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from paceline.advice.task import AUDIO, IMAGE, TABLE, TEXT, TREES, TaskDescription, read_shape
from paceline.cost.workload_tracing import DataShape, data_shape_of
from paceline.errors import InputError
from paceline.workload import Workload

STAND_IN_BYTES = 8 << 20
MOST_STAND_INS, FEWEST_STAND_INS = 1024, 64
"""Samples that stand in for data: enough for some steps, few enough for images of any size."""
LOGIC_DEPTH = 5
FEW_LABELS = 0.1
"""Share of labelled samples below which learning without them first is worth its time."""
READ_AS = {IMAGE: (IMAGE, AUDIO, TABLE), TABLE: (TABLE, AUDIO), TEXT: (TEXT,), "tree": (TREES,)}
"""What data of a kind may be described as."""


@dataclass(frozen=True)
class DataFacts:
    kind: str
    """image, audio, table, text or trees."""
    shape: tuple[int, ...]
    samples: int
    labels: int
    """Samples with a label."""
    classes: int
    source: str
    stand_in: bool = False
    """Whether `source` are synthetic samples in place of data that were only described."""

    @property
    def inputs(self) -> int:
        """Numbers per sample."""
        return math.prod(self.shape)

    @property
    def is_sequence(self) -> bool:
        """Whether a sample has steps."""
        return self.kind in (AUDIO, TEXT) or (self.kind == TABLE and len(self.shape) > 1)

    @property
    def steps(self) -> int:
        return self.shape[-2] if len(self.shape) > 1 else self.shape[0]


def facts_of(task: TaskDescription) -> tuple[DataFacts, DataShape]:
    """The facts, and the shape that predictions need, with the number of samples that were described."""
    source = task.data if task.data is not None else _stand_in(task)
    shape = data_shape_of(Workload(data=source))
    kind = _kind(task, shape)
    samples = task.samples if task.data is None and task.samples is not None else shape.samples
    labels = min(samples, samples if task.labels is None else task.labels)
    facts = DataFacts(kind, tuple(shape.shape), samples, labels, shape.classes, source, task.data is None)
    return facts, replace(shape, samples=samples)


def _kind(task: TaskDescription, shape: DataShape) -> str:
    """As described, if that fits the data."""
    if task.data is None:
        assert task.kind is not None
        return task.kind
    known = READ_AS.get(shape.kind)
    if known is None:
        raise InputError(
            f"`data={task.data!r:.60}` have samples of several parts: advice is for images, tables and text"
        )
    if task.kind is not None and task.kind not in known:
        raise InputError(f"`kind={task.kind!r}` does not fit `data={task.data!r:.60}`, which are {shape.kind} data")
    return task.kind or known[0]


def _stand_in(task: TaskDescription) -> str:
    if task.kind == TEXT:
        return "text" if task.shape is None else f"text?window={read_shape(task.shape)[0]}"
    if task.kind == TREES:
        return f"logic:{LOGIC_DEPTH}"
    assert task.shape is not None
    sizes = read_shape(task.shape)
    if len(sizes) == 2:  # a sequence: each row is a step
        sizes = (1, *sizes)
    fitting = max(FEWEST_STAND_INS, min(MOST_STAND_INS, STAND_IN_BYTES // math.prod(sizes)))
    count = min(fitting, task.samples or fitting)
    few = task.labels is not None and task.labels < FEW_LABELS * (task.samples or 0)
    scale = "?scale=unit" if few else ""  # Boltzmann machines take numbers in [0, 1]
    return f"synthetic:{'x'.join(map(str, sizes))}/{task.classes or 10}{scale}:{count}"
