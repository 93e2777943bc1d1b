"""Several tensors of one batch under their names, as Hugging Face's tokenizers give them.

A batch is a pair (x, y) everywhere: x is a tensor or `Fields`, y the target. `Fields` is indexed, moved and copied as
if it were one tensor, and remembers what the user's data gave, so that the user's loss is given the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from paceline.errors import DataError, a_type

LABELS = ("labels", "label", "targets", "target", "y")
"""Keys of a dictionary that hold the target; the first that is there."""

Form = Literal["dict", "tuple", "tensor"]


class Fields(Mapping[str, Tensor]):
    """`form` is what the user's data gave; `label` is the field that is the target too."""

    def __init__(self, tensors: Mapping[str, Tensor], form: Form = "dict", label: str | None = None) -> None:
        self.tensors, self.form, self.label = dict(tensors), form, label
        self.with_target = False
        """Whether a target came with these fields, as one more member of a pair."""

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        """Samples, as of a tensor; the number of fields is that of `tensors`."""
        return len(next(iter(self.tensors.values())))

    def __bool__(self) -> bool:
        return True

    def each(self, change: Callable[[Tensor], Tensor]) -> Fields:
        """The fields with every tensor changed."""
        changed = Fields({name: change(tensor) for name, tensor in self.tensors.items()}, self.form, self.label)
        changed.with_target = self.with_target
        return changed

    def index_select(self, dimension: int, chosen: Tensor) -> Fields:
        return self.each(lambda tensor: tensor.index_select(dimension, chosen))

    def rows(self, piece: slice) -> Fields:
        return self.each(lambda tensor: tensor[piece])

    def to(self, device: torch.device) -> Fields:
        return self.each(lambda tensor: tensor.to(device))

    def clone(self) -> Fields:
        return self.each(torch.clone)

    def record_stream(self, stream: Any) -> None:
        for tensor in self.tensors.values():
            tensor.record_stream(stream)

    @property
    def has_target(self) -> bool:
        return self.with_target or self.label is not None

    @property
    def device(self) -> torch.device:
        return next(iter(self.tensors.values())).device

    @property
    def size_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def batch(self, y: Tensor) -> Any:
        """The batch as the user's data gave it."""
        values = tuple(self.tensors.values())
        given: Any = self.tensors if self.form == "dict" else values if self.form == "tuple" else values[0]
        if not self.with_target:
            return given
        return (*given, y) if self.form == "tuple" else (given, y)


Inputs = Tensor | Fields


def as_given(batch: tuple[Inputs, Tensor]) -> Any:
    """A batch as the user's data gave it: a pair, a dictionary, a tuple or a tensor."""
    x, y = batch
    return x.batch(y) if isinstance(x, Fields) else batch


def as_batch(name: str, given: Any) -> tuple[Inputs, Tensor]:
    """What a data set or a collate function gave as (x, y); a batch without a target has a y of zeros."""
    if isinstance(given, Tensor):
        return _untargeted(Fields({"x": given}, "tensor"))
    if isinstance(given, Mapping):
        return _from_mapping(name, given)
    if not isinstance(given, tuple | list) or not given:
        raise DataError(
            f"data {name!r}: a batch is {a_type(given)}; it should be a tensor, a pair (x, y), a longer tuple "
            "whose last member is the target, or a dictionary of tensors"
        )
    if len(given) == 1:
        return _untargeted(Fields({"x": _tensor(name, "x", given[0])}, "tuple"))
    *inputs, target = given
    y = _tensor(name, "the target", target)
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        fields = Fields(_tensors(name, inputs[0]), "dict")
    elif len(inputs) == 1:
        return _same_length(name, _tensor(name, "x", inputs[0]), y)
    else:
        fields = Fields({f"x{i}": _tensor(name, f"input {i + 1}", value) for i, value in enumerate(inputs)}, "tuple")
    fields.with_target = True
    return _same_length(name, fields, y)


def _from_mapping(name: str, given: Mapping[Any, Any]) -> tuple[Inputs, Tensor]:
    tensors = _tensors(name, given)
    label = next((key for key in LABELS if key in tensors), None)
    fields = Fields(tensors, "dict", label)
    return _untargeted(fields) if label is None else _same_length(name, fields, tensors[label])


def _untargeted(fields: Fields) -> tuple[Fields, Tensor]:
    return fields, torch.zeros(len(fields))


def _tensors(name: str, given: Mapping[Any, Any]) -> dict[str, Tensor]:
    tensors = {str(key): _tensor(name, f"{key!r}", value) for key, value in given.items()}
    if not tensors:
        raise DataError(f"data {name!r}: a batch is an empty dictionary")
    lengths = {key: len(tensor) for key, tensor in tensors.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"data {name!r}: the fields of a batch differ in length: {lengths}")
    return tensors


def _tensor(name: str, what: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise DataError(
            f"data {name!r}: {what} of a batch is {a_type(value)}; it should be a tensor "
            "(several targets: return a dictionary and use a loss(model, batch))"
        )
    if value.dim() == 0:
        raise DataError(f"data {name!r}: {what} of a batch has no dimension; its first should be that of the samples")
    return value


def _same_length(name: str, x: Inputs, y: Tensor) -> tuple[Inputs, Tensor]:
    if len(x) != len(y):
        raise DataError(f"data {name!r}: {len(x)} samples, but {len(y)} targets; both need the same number")
    return x, y
