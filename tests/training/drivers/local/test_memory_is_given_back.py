"""After a run its memory is gone at once, not when Python happens to look for cycles."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from paceline.training.drivers.local import launcher
from paceline.workload import resolve


@pytest.mark.parametrize("strategy", ["downpour", "sync"])
def test_no_shared_memory_is_left_in_the_launcher(strategy):
    gc.disable()
    try:
        launcher.run(resolve("dnn", {"data": "digits", "epochs": 1, "device": "cpu"}), strategy, workers=2)
        assert "paceline-parameters" not in Path("/proc/self/maps").read_text()
    finally:
        gc.enable()
