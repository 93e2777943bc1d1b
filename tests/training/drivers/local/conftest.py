"""Stages that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.training.drivers.local.stage import Stage


@pytest.fixture
def stage() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(*arguments: Any, **options: Any) -> Stage:
        made.append(Stage(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
