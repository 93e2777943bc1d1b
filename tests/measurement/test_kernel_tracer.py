"""CUPTI is told to detach after a trace, never during one, and the environment is restored."""

from __future__ import annotations

import os

import pytest
import torch

from paceline.measurement import kernel_tracer
from paceline.measurement.kernel_tracer import TEARDOWN_VARIABLE, KernelTracer


class Nothing:
    """A profiler that sees nothing and records its calls."""

    seen: list[tuple[str, str | None]]

    def __init__(self, **how: object) -> None:
        self.kineto_results = self

    def __enter__(self) -> None:
        self.seen.append(("start", os.environ.get(TEARDOWN_VARIABLE)))

    def __exit__(self, *error: object) -> None:
        self.seen.append(("stop", os.environ.get(TEARDOWN_VARIABLE)))

    def events(self) -> list[object]:
        return []


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(kernel_tracer, "profile", Nothing)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.delenv(TEARDOWN_VARIABLE, raising=False)
    Nothing.seen = []
    return Nothing.seen


def test_cupti_detaches_between_traces(asked):
    watch = KernelTracer(torch.device("cpu"), detach=True)
    for _ in range(2):
        watch.start()
        assert watch.stop() == []
    assert asked == [("start", None), ("stop", "1")] * 2
    watch.restore_environment()
    assert TEARDOWN_VARIABLE not in os.environ


def test_cupti_can_stay_attached(asked):
    watch = KernelTracer(torch.device("cpu"), detach=True)
    watch.start()
    watch.stop(keep_attached=True)
    other = KernelTracer(torch.device("cpu"))
    other.start()
    other.stop()
    assert asked == [("start", None), ("stop", None)] * 2


def test_the_users_environment_variable_is_kept(asked, monkeypatch):
    monkeypatch.setenv(TEARDOWN_VARIABLE, "0")
    watch = KernelTracer(torch.device("cpu"), detach=True)
    watch.start()
    watch.stop()
    watch.restore_environment()
    assert asked == [("start", "0"), ("stop", "0")] and os.environ[TEARDOWN_VARIABLE] == "0"
