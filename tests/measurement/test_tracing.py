"""The tracing library is asked to leave after a trace, never while one is under way, and nothing of that remains."""

from __future__ import annotations

import os

import pytest
import torch

from paceline.measurement import tracing
from paceline.measurement.tracing import LETS_GO, Tracing


class Nothing:
    """A profiler that sees nothing and notes what it was asked."""

    seen: list[tuple[str, str | None]]

    def __init__(self, **how: object) -> None:
        self.kineto_results = self

    def __enter__(self) -> None:
        self.seen.append(("start", os.environ.get(LETS_GO)))

    def __exit__(self, *error: object) -> None:
        self.seen.append(("stop", os.environ.get(LETS_GO)))

    def events(self) -> list[object]:
        return []


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(tracing, "profile", Nothing)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.delenv(LETS_GO, raising=False)
    Nothing.seen = []
    return Nothing.seen


def test_it_is_asked_to_leave_between_traces(asked):
    watch = Tracing(torch.device("cpu"), lets_go=True)
    for _ in range(2):
        watch.start()
        assert watch.stop() == []
    assert asked == [("start", None), ("stop", "1")] * 2
    watch.forget_to_let_go()
    assert LETS_GO not in os.environ


def test_it_may_stay(asked):
    watch = Tracing(torch.device("cpu"), lets_go=True)
    watch.start()
    watch.stop(stays=True)
    other = Tracing(torch.device("cpu"))
    other.start()
    other.stop()
    assert asked == [("start", None), ("stop", None)] * 2


def test_what_a_user_asked_for_remains(asked, monkeypatch):
    monkeypatch.setenv(LETS_GO, "0")
    watch = Tracing(torch.device("cpu"), lets_go=True)
    watch.start()
    watch.stop()
    watch.forget_to_let_go()
    assert asked == [("start", "0"), ("stop", "0")] and os.environ[LETS_GO] == "0"
