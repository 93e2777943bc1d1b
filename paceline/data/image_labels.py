"""Readable names for class folders (`n01440764` is a tench), from JSON, TOML, CSV or two columns of text."""

from __future__ import annotations

import csv
import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import DataError


def read_labels(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".json":
            return _from_mapping(json.loads(text))
        if path.suffix == ".toml":
            return _from_mapping(tomllib.loads(text))
        if path.suffix == ".csv":
            return {row[0].strip(): row[1].strip() for row in csv.reader(text.splitlines()) if row}
        pairs = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
        return {pair[0].rstrip(","): pair[1].strip() for pair in pairs}
    except OSError as error:
        raise DataError(f"labels {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"labels {path} must map folder names to class names, one pair per line or key: {error}"
        ) from error


def _from_mapping(found: Mapping[str, Any]) -> dict[str, str]:
    """Also understands ImageNet's usual `{"0": ["n01440764", "tench"], ...}`."""
    pairs = (value if isinstance(value, list) else [key, value] for key, value in found.items())
    return {str(folder): str(name) for folder, name in pairs}


def readable_names(folders: Sequence[str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """A name for each folder; where two share one (ImageNet has two cranes) the folder is added."""
    names = [labels.get(folder, folder) for folder in folders]
    often = Counter(names)
    return tuple(
        name if often[name] == 1 else f"{name} ({folder})" for folder, name in zip(folders, names, strict=True)
    )
