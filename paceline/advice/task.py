"""The description of a task: what the network is to do, with which data, how well, and on what hardware."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paceline.errors import InputError, located, nearest
from paceline.settings import check, read, read_time, read_toml, setting, settings_of

CLASSIFY, GENERATE, SPECIFIED, COMPRESS, SEQUENCE = TASKS = (
    "classify", "generate", "generate-to-spec", "compress", "sequence"
)  # fmt: skip
IMAGE, AUDIO, TABLE, TEXT, TREES = KINDS = ("image", "audio", "table", "text", "trees")
HERE = "here"
"""In place of a device: this machine."""
DIMENSIONS = {IMAGE: (3,), AUDIO: (2, 3), TABLE: (1, 2), TEXT: (1,), TREES: (1,)}
"""Numbers in a shape, by kind of data."""
MOST_INPUTS = 10**9
EXAMPLE_SHAPES = {
    IMAGE: "3x32x32 (channels, height, width)", AUDIO: "100x40 (steps, numbers per step)",
    TABLE: "30 (columns), or 100x2 (steps, numbers per step)", TEXT: "64 (characters)", TREES: "8 (leaves)",
}  # fmt: skip
DESCRIBED = ("kind", "shape", "samples", "classes", "labels")
"""What data say of themselves, and a description says instead."""


def read_shape(text: str) -> tuple[int, ...]:
    """`3x32x32` as numbers."""
    if not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8}){0,3}", text):
        raise InputError(f"shape={text!r:.60} should be sizes with x between them, e.g. 3x32x32, 100x40 or 30")
    shape = tuple(map(int, text.split("x")))
    if math.prod(shape) > MOST_INPUTS:
        raise InputError(f"shape={text!r:.60} has {math.prod(shape):,} numbers per sample: at most {MOST_INPUTS:,}")
    return shape


def read_error(text: str) -> float:
    """A share, or a percentage: 0.05 and 5% are the same."""
    try:
        word = text.strip()
        value = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < (1 if text.strip().endswith("%") else math.inf):
        raise InputError(f"`error={text!r:.60}` should be a number above 0 (below 100 with %), e.g. 0.05 or 5%")
    return value


@dataclass(frozen=True)
class TaskDescription:
    """A task to ask for advice about: the data, the acceptable error, the time and the hardware."""

    COMMON: ClassVar[dict[str, Any]] = {"group": "Data"}

    task: str
    kind: str | None = setting(None, "Kind of data, if no data source is given.", choices=KINDS)
    data: str | None = setting(
        None, "Your data source, as for train (see paceline data list); or describe the data with the options below.",
        metavar="SOURCE",
    )  # fmt: skip
    shape: str | None = setting(
        None,
        "Shape of a sample: CHANNELSxHEIGHTxWIDTH of an image, STEPSxNUMBERS of a sequence, COLUMNS of a table.",
        check=lambda text: text is None or read_shape(text), metavar="SHAPE",
    )  # fmt: skip
    samples: int | None = setting(None, "Number of training samples.", least=1, most=10**12)
    labels: int | None = setting(None, "Number of labeled samples; default: all.", least=0, most=10**12)
    classes: int | None = setting(None, "Number of classes.", least=2, most=10**6)
    error: str | None = setting(
        None, "Acceptable error, e.g. 0.05 or 5%: the share of wrong answers, or the metric of a network that has one.",
        group="Objective", check=lambda text: text is None or read_error(text), metavar="ERROR",
    )  # fmt: skip
    time: str | None = setting(
        None, "Time available for training: 90s, 10min, 24h.", group="Objective",
        check=lambda text: text is None or read_time("time", text), metavar="TIME",
    )  # fmt: skip
    device: str = setting(
        HERE, "Device or machine of the catalogue, or here (this machine); with several names, the fastest is chosen.",
        group="Hardware", metavar="NAME[,NAME...]",
    )  # fmt: skip
    devices: int = setting(1, "Number of these devices.", group="Hardware", least=1, most=10_000)
    link: str | None = setting(
        None, "Link between machines of several devices, see paceline catalogue links.", group="Hardware",
        metavar="NAME",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise InputError(f"no task {self.task!r:.60}: {nearest(str(self.task), TASKS)}")
        check(self, InputError)
        if self.data is None:
            self._check_described()
        else:
            for key in ("shape", "samples", "classes"):
                if getattr(self, key) is not None:
                    raise InputError(f"`{key}` is known from `data={self.data!r:.60}`: leave it out")

    def _check_described(self) -> None:
        if self.kind is None:
            raise InputError(f"name your `data`, or their `kind`: {', '.join(KINDS)}")
        if self.kind in (TEXT, TREES):
            return
        if self.shape is None:
            raise InputError(f"what `shape` has a sample? e.g. {EXAMPLE_SHAPES[self.kind]}; or name your `data`")
        if len(read_shape(self.shape)) not in DIMENSIONS[self.kind]:
            raise InputError(f"shape={self.shape!r} does not fit {self.kind} data: write {EXAMPLE_SHAPES[self.kind]}")
        for key in ("samples", *(("classes",) if self.task in (CLASSIFY, SPECIFIED, SEQUENCE) else ())):
            if getattr(self, key) is None:
                raise InputError(f"how many `{key}` are there? or name your `data`")
        if self.labels is not None and self.samples is not None and self.labels > self.samples:
            raise InputError(f"labels={self.labels:,} should be at most the samples, {self.samples:,}")

    @property
    def acceptable_error(self) -> float:
        return math.nan if self.error is None else read_error(self.error)

    @property
    def time_s(self) -> float:
        return math.inf if self.time is None else read_time("time", self.time)


def describe_task(place: str | Path, given: Mapping[str, Any]) -> TaskDescription:
    """The task that a word or a TOML file names, with `given` settings on top; values may be text."""
    found: dict[str, Any] = {}
    name = str(place)
    if name.endswith(".toml"):
        found = read_toml(name)
        name = found.pop("task", "")
        with located(f"{place}: "):
            if not isinstance(name, str) or not name:
                raise InputError(f'it has no task: write task = "classify", or {", ".join(TASKS[1:])}')
            for key, value in _read_settings(found).items():
                settings_of(TaskDescription)[key].read(value)
    if "data" in given:  # what the file says is about other data
        found = {key: value for key, value in found.items() if key not in DESCRIBED}
    return TaskDescription(name, **_read_settings({**found, **given}))


def _read_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Text is read as a setting's type, and a number as the text of an error or of seconds."""
    made = dict(given)
    for key, unit in (("error", ""), ("time", "s")):
        if isinstance(made.get(key), int | float) and not isinstance(made[key], bool):
            made[key] = f"{made[key]:.15g}{unit}"
    return read(TaskDescription, made, InputError, "the description of a task")
