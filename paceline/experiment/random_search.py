"""Hyper-parameters drawn at random. A value depends only on (seed, trial, key), so that adding trials or keys does not
change the others."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.errors import InputError, nearest
from paceline.settings import Setting

SHAPES = ("choice", "uniform", "log-uniform", "integer")
DIGITS = 6  # significant digits of a drawn number


@dataclass(frozen=True)
class RandomSearch:
    trials: int
    seed: int = 0
    draws: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    """By key, a distribution and its arguments: `{"log-uniform": [0.001, 0.1]}`."""

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("seed", 0)):
            Setting(f"[random] {name}", int, least, least=least).read(getattr(self, name))
        if not self.draws:
            raise InputError("[random] draws nothing: name a key, e.g. lr = { log-uniform = [0.001, 0.1] }")
        for key, draw in self.draws.items():
            _check(key, draw)

    def settings(self, trial: int) -> dict[str, Any]:
        """The values of trial 1, 2, …"""
        return {key: _drawn(draw, random.Random(f"{self.seed}/{trial}/{key}")) for key, draw in self.draws.items()}

    def extremes(self) -> dict[str, list[Any]]:
        """By key, values of the type that is drawn, for checking."""
        draws = {key: next(iter(draw.items())) for key, draw in self.draws.items()}
        return {key: [float(v) for v in vs] if "uniform" in shape else vs for key, (shape, vs) in draws.items()}


def _check(key: str, draw: Any) -> None:
    where = f"[random] {key.replace('_', '-')}"
    if not isinstance(draw, Mapping) or len(draw) != 1:
        raise InputError(f"{where}={draw!r:.60} should be one of {', '.join(SHAPES)}, e.g. {{ uniform = [0.0, 0.5] }}")
    ((shape, values),) = draw.items()
    if shape not in SHAPES:
        raise InputError(f"{where}: {shape!r} is unknown: {nearest(shape, SHAPES)}")
    if not isinstance(values, list) or not values:
        raise InputError(f"{where}: {shape}={values!r:.60} should be a list")
    if shape == "choice":
        return
    kinds = int if shape == "integer" else int | float
    numbers = len(values) == 2 and all(isinstance(v, kinds) and not isinstance(v, bool) for v in values)
    if not numbers or not all(math.isfinite(v) for v in values) or values[0] > values[1]:
        what = "whole numbers" if shape == "integer" else "numbers"
        raise InputError(f"{where}: {shape}={values!r:.60} should be two {what}, the least and the greatest")
    if shape == "log-uniform" and values[0] <= 0:
        raise InputError(f"{where}: log-uniform={values!r:.60} should be above 0")


def _drawn(draw: Mapping[str, list[Any]], generator: random.Random) -> Any:
    ((shape, values),) = draw.items()
    if shape == "choice":
        return generator.choice(values)
    least, greatest = values
    if shape == "integer":
        return generator.randint(least, greatest)
    if shape == "uniform":
        number = generator.uniform(least, greatest)
    else:
        number = math.exp(generator.uniform(math.log(least), math.log(greatest)))
    return min(max(float(f"{number:.{DIGITS}g}"), least), greatest)
