"""`ray-data:PATH`: parquet files that Ray Data reads, for data too large for the memory of a node."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from paceline.data.cache import Progress
from paceline.data.dataset import Dataset
from paceline.data.given import dataset_of_parts, ray_part, ray_parts
from paceline.data.source import Source, split_items, without_count
from paceline.errors import DataError, reason


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.allow("target", "test", "drop")
    path = source.needed_argument("path")
    target, dropped = source.options.get("target", ""), list(split_items(source.options.get("drop", "")))
    name = without_count(source)
    train = _read(source, path, dropped)
    if "test" not in source.options:
        return dataset_of_parts(name, *ray_parts(name, train, target, stacked=True))
    parts = (train, _read(source, source.options["test"], dropped))
    return dataset_of_parts(name, *(ray_part(name, part, target, stacked=True) for part in parts))


def _read(source: Source, path: str, dropped: list[str]) -> Any:
    try:
        read = import_module("ray.data").read_parquet(path)
        return read.drop_columns(dropped) if dropped else read
    except ImportError:
        raise DataError(f"data {source.text!r} needs Ray Data: pip install 'paceline[ray]' 'ray[data]'") from None
    except Exception as error:
        why = "No such file or directory" if isinstance(error, FileNotFoundError) else reason(error)
        raise DataError(f"data {source.text!r}: cannot read {path}: {why}") from error
