"""The head waits for its nodes, for a limited time."""

from __future__ import annotations

import sys

import pytest

from paceline.deployment import wait_for_nodes as waiting
from paceline.testing.clock import FakeClock


class FakeRay:
    """A node joins every ten seconds, up to `most`; one more is dead."""

    def __init__(self, most: int) -> None:
        self.clock, self.most = FakeClock(), most

    def init(self, **options: object) -> None:
        assert options["address"] == "auto"

    def nodes(self) -> list[dict[str, bool]]:
        return [{"Alive": False}] + [{"Alive": True}] * min(self.most, 1 + int(self.clock() // 10))


def test_it_returns_when_all_are_alive():
    ray = FakeRay(most=5)
    assert waiting.wait_for_nodes(ray, 3, now=ray.clock, sleep=ray.clock.sleep) == 3
    assert ray.clock() == 20


def test_it_gives_up_after_ten_minutes():
    ray = FakeRay(most=2)
    assert waiting.wait_for_nodes(ray, 3, now=ray.clock, sleep=ray.clock.sleep) == 2
    assert ray.clock() == waiting.WITHIN_S == 600


@pytest.mark.parametrize(
    ("wanted", "code", "line"), [(1, 0, ""), (2, 1, "1 of 2 nodes joined the Ray cluster within 0 s")]
)
def test_a_script_is_told(monkeypatch, capsys, wanted, code, line):
    monkeypatch.setitem(sys.modules, "ray", FakeRay(most=1))
    monkeypatch.setattr(waiting, "WITHIN_S", 0.0)
    monkeypatch.setattr(waiting, "EVERY_S", 0.0)
    assert waiting.main([str(wanted)]) == code
    assert capsys.readouterr().err == (f"paceline: {line}\n" if line else "")
