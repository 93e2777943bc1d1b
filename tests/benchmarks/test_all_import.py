"""Every benchmark can be started: its imports exist."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.__main__ import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_imported_and_has_a_run(name):
    assert callable(importlib.import_module(f"benchmarks.{name}").run)
