"""What users have as data: torch data sets and loaders, arrays, tensors and dictionaries of them, alone or in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)
from torch.utils.data import Dataset as TorchDataset

from paceline.data.arrays import as_tensor, classes_of, dataset_of, kind_of
from paceline.data.dataset import Arrays, Dataset
from paceline.data.fields import Fields, Inputs, as_batch
from paceline.data.ray_rows import as_one_batch, is_ray_data, ray_rows
from paceline.data.samples import Samples
from paceline.errors import DataError

TEST_EVERY = 10
"""Where only one part is given, every tenth sample is for testing."""

ACCEPTED = (
    "a torch Dataset or DataLoader, a list of samples, arrays or tensors (x, y), a dictionary of arrays, a pair "
    "(train, test) of any of these, a ray.data.Dataset, (x_train, y_train, x_test, y_test), or a paceline.Dataset"
)

Part = Arrays | Samples
PartKind = TypeVar("PartKind", Arrays, Samples)


def dataset_from(name: str, given: Any) -> Dataset:
    """Any of `ACCEPTED` as a data set."""
    if isinstance(given, Dataset):
        return given
    four = isinstance(given, tuple | list) and len(given) == 4 and not _is_list_of_samples(given)
    if four and not any(_is_part(each) for each in given):
        return dataset_of(name, *given)
    return dataset_of_parts(name, *_parts(name, given))


def dataset_of_parts(name: str, train: Part, test: Part) -> Dataset:
    """A data set whose samples are as the first one is."""
    x, y = _example(train)
    other, target = _example(test)
    if _shapes(x, y) != _shapes(other, target):
        raise DataError(
            f"data {name!r}: a training sample is {_shapes(x, y)}, a test sample {_shapes(other, target)}; "
            "both need one shape"
        )
    return Dataset(
        name=name,
        kind=_kind(x, y),
        shape=() if isinstance(x, Fields) else tuple(x.shape[1:]),
        classes=_classes(name, train, test, x, y),
        train=train,
        test=test,
        prepare=numbers_as_trained,
    )


def numbers_as_trained(x: Any, y: Tensor) -> tuple[Any, Tensor]:
    """Targets in the types that losses take; everything else is left as the user's data gave it."""
    if y.is_floating_point():
        return x, y.to(torch.get_default_dtype())
    return x, y if y.dtype == torch.bool else y.long()


def ray_part(name: str, given: Any, target: str = "", *, stacked: bool = False) -> Samples:
    """A part from a `ray.data.Dataset`, which is executed now."""
    return _not_empty(name, Samples(name, ray_rows(name, given, target, stacked=stacked), as_one_batch))


def ray_parts(name: str, given: Any, target: str = "", *, stacked: bool = False) -> tuple[Samples, Samples]:
    """Both parts from one: its last tenth is for testing."""
    whole = ray_part(name, given, target, stacked=stacked)
    train = len(whole) - max(1, len(whole) // TEST_EVERY)
    if not train:
        raise DataError("one sample is too few for a training and a test part; give a pair (train, test)")
    return whole.only(range(train)), whole.only(range(train, len(whole)))


def _parts(name: str, given: Any) -> tuple[Part, Part]:
    if is_ray_data(given):
        return ray_parts(name, given)
    if hasattr(given, "columns") and hasattr(given, "to_numpy"):
        raise DataError(
            f"data {name!r} is a table: give its arrays, as in "
            "data=(table[inputs].to_numpy('float32'), table[target].to_numpy())"
        )
    if isinstance(given, Mapping) and "train" in given and not _is_array(given["train"]):
        test = next((key for key in ("test", "validation", "val") if key in given), None)
        if test is None:
            return _split(_part(name, given["train"]))
        return _part(name, given["train"]), _part(name, given[test])
    if isinstance(given, tuple | list) and len(given) == 2 and all(_is_part(each) for each in given):
        return _part(name, given[0]), _part(name, given[1])
    return _split(_part(name, given))


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) > 1 and all(_is_array(each) for each in value)


def _is_part(value: Any) -> bool:
    """Whether it can be a part of a data set by itself."""
    if _is_array(value) or isinstance(value, str | bytes):
        return False
    if isinstance(value, tuple | list):
        return _is_pair(value) or _is_list_of_samples(value)
    return isinstance(value, Mapping | DataLoader | TorchDataset) or _can_be_indexed(value) or is_ray_data(value)


def _is_list_of_samples(value: Any) -> bool:
    """A list of tuples or dictionaries, which a `DataLoader` would take for a data set, too."""
    return isinstance(value, list) and bool(value) and all(isinstance(each, tuple | Mapping) for each in value)


def _can_be_indexed(value: Any) -> bool:
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _part(name: str, given: Any) -> Part:
    if is_ray_data(given):
        return ray_part(name, given)
    if isinstance(given, DataLoader):
        return _of_loader(name, given)
    if isinstance(given, IterableDataset):
        raise DataError(
            f"data {name!r} is an IterableDataset, whose samples cannot be read by index; "
            "give a Dataset with __len__ and __getitem__, or arrays"
        )
    if isinstance(given, TensorDataset):
        return _arrays(name, given.tensors)
    if isinstance(given, Subset) and isinstance(given.dataset, TensorDataset):
        chosen = torch.as_tensor(given.indices)
        return _arrays(name, tuple(tensor[chosen] for tensor in given.dataset.tensors))
    if isinstance(given, Mapping):
        return _arrays(name, {key: as_tensor(f"{name}: {key}", value) for key, value in given.items()})
    if _is_pair(given):
        return _arrays(name, tuple(as_tensor(name, value) for value in given))
    if _is_list_of_samples(given):
        return Samples(name, given)
    if isinstance(given, tuple | list) or not _can_be_indexed(given):
        found = type(given).__name__
        if isinstance(given, tuple | list):
            found += f" of {len(given)} ({', '.join(type(each).__name__ for each in given[:5])})"
        raise DataError(f"data {name!r} is of type {found}; it should be {ACCEPTED}")
    return _not_empty(name, Samples(name, given))


def _of_loader(name: str, loader: DataLoader[Any]) -> Part:
    """The data set, collate function and readers of a loader; batch and order are those of the workload."""
    part = _part(name, loader.dataset)
    if type(loader.sampler) not in (RandomSampler, SequentialSampler) or loader.batch_size is None:
        raise DataError(
            f"data {name!r}: a DataLoader with a custom sampler cannot be used, because every worker must be able to "
            "read any batch by its index; select or repeat samples in the Dataset instead"
        )
    own_collate = loader.collate_fn if loader.collate_fn is not default_collate else None
    if isinstance(part, Arrays):
        if own_collate is None:
            return part
        part = Samples(name, loader.dataset)
    return Samples(name, part.dataset, own_collate, loader.num_workers, part.indices)


def _arrays(name: str, given: Any) -> Arrays:
    return _not_empty(name, Arrays(*as_batch(name, given)))


def _not_empty(name: str, part: PartKind) -> PartKind:
    if not len(part):
        raise DataError(f"data {name!r} has no samples in its training or test part")
    return part


def _split(part: Part) -> tuple[Part, Part]:
    every = range(len(part))
    test = [i for i in every if i % TEST_EVERY == TEST_EVERY - 1] or [len(part) - 1]
    train = [i for i in every if i % TEST_EVERY != TEST_EVERY - 1] if len(part) >= TEST_EVERY else list(every)[:-1]
    if not train:
        raise DataError("one sample is too few for a training and a test part; give a pair (train, test)")
    if isinstance(part, Samples):
        return part.only(train), part.only(test)
    return part.select(torch.tensor(train)), part.select(torch.tensor(test))


def _example(part: Part) -> tuple[Inputs, Tensor]:
    if isinstance(part, Samples):
        return part.read(torch.zeros(1, dtype=torch.int64))
    return part.rows(slice(0, 1))


def _shapes(x: Inputs, y: Tensor) -> dict[str, tuple[int, ...]]:
    tensors = x.tensors if isinstance(x, Fields) else {"x": x, "y": y}
    return {name: tuple(tensor.shape[1:]) for name, tensor in tensors.items()}


def _kind(x: Inputs, y: Tensor) -> Literal["image", "text", "table", "fields"]:
    return "fields" if isinstance(x, Fields) else kind_of(x, y)


def _classes(name: str, train: Part, test: Part, x: Inputs, y: Tensor) -> tuple[str, ...]:
    """The names that the data set gives its classes, else their numbers; none where the target is not one class."""
    tokens = _kind(x, y) == "text"
    if y.is_floating_point() or (y.dim() > 1 and not tokens):
        return ()
    named = _attribute(train, "classes")
    if isinstance(named, list | tuple) and named:
        return tuple(str(each) for each in named)
    return classes_of(name, _labels(train), _labels(test))


def _attribute(part: Part, name: str) -> Any:
    """What a torch data set says about itself, also through `Subset`."""
    dataset = part.dataset if isinstance(part, Samples) else None
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return getattr(dataset, name, None)


def _labels(part: Part) -> Tensor:
    """All targets. Those of a data set that has no list of them are read sample by sample."""
    if isinstance(part, Arrays):
        return part.y
    listed = _attribute(part, "targets")
    if listed is not None:
        try:
            return torch.as_tensor(listed)
        except (TypeError, ValueError, RuntimeError):
            pass
    return torch.cat([part.read(chosen)[1] for chosen in torch.arange(len(part)).split(256)])
