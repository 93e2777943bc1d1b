"""One thread for PyTorch in every test, and tests that need a GPU are skipped where there is none."""

from __future__ import annotations

import functools
import os

# Several test processes share the cores, and processes that tests start inherit this. Set before torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # where a test asks for threads, those that wait leave the core to others

import pytest
import torch

from paceline.measurement import mark_cost
from tests.command_line import paceline, trained, trained_copy  # noqa: F401
from tests.ray_cluster import ray_cluster, shared_ray_cluster  # noqa: F401

mark_cost_s = functools.cache(mark_cost.mark_cost_s)
"""Every measurement begins with the cost of its marks, which takes a second."""


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs beside the tests, commands say nothing about it."""
    monkeypatch.setattr("paceline.busy_machine.busy_now", lambda: "")
    monkeypatch.setattr("paceline.busy_machine._meanwhile", lambda before, after: "")


@pytest.fixture(autouse=True)
def marks_of_known_cost(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process measures the cost of marks once, except for tests that compare times."""
    if "serial" not in request.keywords:
        for user in ("measured_step", "layer_clock"):
            monkeypatch.setattr(f"paceline.measurement.{user}.mark_cost_s", mark_cost_s)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Sums depend on the number of threads, so no test inherits the number that another one chose."""
    torch.set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))
