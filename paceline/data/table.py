"""Tables, `csv:PATH?target=COLUMN` and `parquet:PATH?target=COLUMN`: a row is a sample, its other columns are features.

Numbers are standardised with the training rows' mean and deviation; text is one column per value, 0 or 1. A target of
text or whole numbers is a class; other numbers are the target of a regression.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paceline.data.arrays import Convert
from paceline.data.cache import Progress
from paceline.data.dataset import Arrays, Dataset
from paceline.data.source import Source, split_items, without_count
from paceline.errors import DataError, nearest, reason

TEST_EVERY = 10
MOST_VALUES = 100
"""Different texts of a feature; more are names or sentences, which one column each would not help."""
MOST_CLASSES = 1000

Column = npt.NDArray[Any]
Table = dict[str, Column]


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.allow("target", "test", "drop")
    read = _read_csv if source.name == "csv" else _read_parquet
    path = Path(source.needed_argument("path")).expanduser()
    table = read(source, path)
    rows = len(next(iter(table.values())))
    chosen = np.arange(rows) % TEST_EVERY == TEST_EVERY - 1
    if "test" in source.options:
        other = read(source, Path(source.options["test"]).expanduser())
        if list(other) != list(table):
            raise DataError(f"data {source.text!r}: the columns of the test table are not those of {path}")
        table = {name: np.concatenate(_same_kind(column, other[name])) for name, column in table.items()}
        chosen = np.arange(len(next(iter(table.values())))) >= rows
    if not chosen.any() or chosen.all():
        raise DataError(f"data {source.text!r}: {rows} rows are too few for a training and a test part")
    target = _target_name(source, table)
    for name in (*split_items(source.options.get("drop", "")),):
        if name not in table or name == target:
            raise DataError(f"data {source.text!r}: drop={name}: {nearest(name, [n for n in table if n != target])}")
        del table[name]
    y, classes = _target(source, target, table.pop(target))
    if not table:
        raise DataError(f"data {source.text!r}: no column is left besides the target {target!r}")
    x = np.concatenate([_features(source, name, column, ~chosen) for name, column in table.items()], axis=1)
    train, test = (Arrays(torch.from_numpy(x[part]), torch.from_numpy(y[part])) for part in (~chosen, chosen))
    return Dataset(
        name=without_count(source),
        kind="table",
        shape=(x.shape[1],),
        classes=classes,
        train=train,
        test=test,
        prepare=Convert(bytes_to_unit=False, keep_whole=False),
    )


def _same_kind(one: Column, other: Column) -> tuple[Column, Column]:
    """As text where only one of them was read as numbers."""
    return (one, other) if one.dtype.kind == other.dtype.kind else (one.astype(str), other.astype(str))


def _target_name(source: Source, table: Table) -> str:
    target = source.options.get("target", next(reversed(table)))
    if target not in table:
        other = next((sign for sign in (";", "\t", "|") if len(table) == 1 and sign in target + next(iter(table))), "")
        hint = f"its columns are separated by {other!r} instead of commas" if other else nearest(target, table)
        raise DataError(f"data {source.text!r}: no column {target!r}; {hint}")
    return target


def _target(source: Source, name: str, column: Column) -> tuple[Column, tuple[str, ...]]:
    _check_complete(source, name, column, is_target=True)
    if column.dtype.kind == "f" and not np.all(column == np.floor(column)):
        return column.astype(np.float32)[:, None], ()
    values, codes = np.unique(column, return_inverse=True)
    if len(values) > MOST_CLASSES:
        if column.dtype.kind == "U":
            raise DataError(f"data {source.text!r}: target {name!r} has {len(values):,} values, too many for classes")
        return column.astype(np.float32)[:, None], ()
    return codes.astype(np.int64).reshape(-1), tuple(_shown(value) for value in values)


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, str) else f"{value:g}"


def _features(source: Source, name: str, column: Column, training: npt.NDArray[np.bool_]) -> Column:
    _check_complete(source, name, column)
    if column.dtype.kind == "U":
        _check_text(source, name, column)
        values, codes = np.unique(column, return_inverse=True)
        if len(values) > MOST_VALUES:
            raise DataError(
                f"data {source.text!r}: column {name!r} has {len(values):,} different texts; "
                f"leave it out with drop={name}"
            )
        return np.eye(len(values), dtype=np.float32)[codes.reshape(-1)]
    numbers = column.astype(np.float64)
    deviation = numbers[training].std()
    scaled: Column = (numbers - numbers[training].mean()) / (deviation or 1.0)
    return scaled.astype(np.float32)[:, None]


def _check_complete(source: Source, name: str, column: Column, *, is_target: bool = False) -> None:
    empty = column == "" if column.dtype.kind == "U" else ~np.isfinite(column)
    if empty.any():
        row = int(np.flatnonzero(empty)[0]) + 1
        kind = "finite value" if column.dtype.kind == "f" and np.isinf(column[row - 1]) else "value"
        raise DataError(
            f"data {source.text!r}: column {name!r} has no {kind} in row {row} ({int(empty.sum())} in all); "
            "fill them in" + (" or remove the rows" if is_target else f", remove the rows, or use drop={name}")
        )


def _check_text(source: Source, name: str, column: Column) -> None:
    """A column of numbers in which a few cells are text, such as NA, is a mistake and no category."""
    texts = [row for row, value in enumerate(column, start=1) if not _is_number(value)]
    if len(texts) < len(column) / 2:
        first = f"{str(column[texts[0] - 1])!r:.40} in row {texts[0]}"
        raise DataError(
            f"data {source.text!r}: column {name!r} has numbers, but {first} "
            f"({len(texts)} such in all); correct them, remove the rows, or use drop={name}"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_csv(source: Source, path: Path) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"data {source.text!r}: cannot read {path}: {why}") from error
    if len(rows) < 2:
        raise DataError(f"data {source.text!r}: {path} needs a line of column names and at least one row")
    header, *body = rows
    if len(set(header)) < len(header):
        raise DataError(f"data {source.text!r}: {path} has two columns of one name")
    for number, row in enumerate(body, start=1):
        if len(row) != len(header):
            raise DataError(f"data {source.text!r}: row {number} has {len(row)} values for {len(header)} columns")
    return {name: _column([row[place].strip() for row in body]) for place, name in enumerate(header)}


def _column(values: list[str]) -> Column:
    """Numbers where every value is one or empty."""
    try:
        return np.array([float(value) if value else np.nan for value in values])
    except ValueError:
        return np.array(values)


def _read_parquet(source: Source, path: Path) -> Table:
    try:
        import pyarrow.parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise DataError(
            f"data {source.text!r}: reading parquet needs the package pyarrow: pip install 'paceline[tables]'"
        ) from None
    try:
        read = pyarrow.parquet.read_table(path)
    except Exception as error:
        why = "No such file or directory" if isinstance(error, FileNotFoundError) else reason(error)
        raise DataError(f"data {source.text!r}: cannot read {path}: {why}") from error
    return {name: _of_arrow(source, name, read[name]) for name in read.column_names}


def _of_arrow(source: Source, name: str, column: Any) -> Column:
    values = column.to_numpy(zero_copy_only=False) if hasattr(column, "chunks") else np.asarray(column)
    if values.dtype.kind in "biuf":
        return np.asarray(values, dtype=np.float64)
    if values.dtype.kind in "OU" and all(value is None or isinstance(value, str) for value in values):
        return np.array(["" if value is None else value for value in values])
    raise DataError(f"data {source.text!r}: column {name!r} is neither numbers nor text; leave it out with drop={name}")
