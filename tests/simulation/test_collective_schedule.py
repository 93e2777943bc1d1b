"""Collectives in virtual time: one after another on a CPU, hidden behind computing where they overlap."""

from __future__ import annotations

from itertools import pairwise

import pytest

from paceline.simulation.collective_schedule import LayerPass, simulate_passes


def sharded(layers: int, compute_s: float, exchange_s: float) -> list[LayerPass]:
    forward = [LayerPass(f"fc{i}", "forward", compute_s, before_s=exchange_s) for i in range(layers)]
    backward = [
        LayerPass(f"fc{i}", "backward", compute_s, before_s=exchange_s, after_s=exchange_s)
        for i in reversed(range(layers))
    ]
    return [*forward, *backward]


def test_without_overlap_everything_adds_up() -> None:
    found = simulate_passes(sharded(3, 2.0, 1.0), overlap=False)
    assert found.compute_s == 12.0
    assert found.seconds == pytest.approx(12.0 + 3 * 1.0 + 3 * 2.0)
    ordered = sorted(found.trace.spans, key=lambda span: span.start_s)
    assert all(before.end_s <= after.start_s + 1e-12 for before, after in pairwise(ordered))


def test_with_overlap_only_the_first_gather_and_the_last_scatter_are_seen() -> None:
    found = simulate_passes(sharded(3, 2.0, 0.5), overlap=True)
    assert found.seconds == pytest.approx(0.5 + 12.0 + 0.5)
    assert found.exposed_s == pytest.approx(1.0)


def test_a_slow_link_is_busy_all_the_time() -> None:
    found = simulate_passes(sharded(3, 1.0, 10.0), overlap=True)
    link_s = sum(span.duration_s for span in found.trace.spans if span.who == "link")
    assert link_s == pytest.approx(9 * 10.0)
    assert link_s <= found.seconds <= link_s + found.compute_s


def test_a_layer_is_computed_only_when_it_is_gathered() -> None:
    found = simulate_passes(sharded(4, 1.0, 3.0), overlap=True)
    gathers = [span.end_s for span in found.trace.spans if span.who == "link"]
    forward = [span for span in found.trace.spans if span.part == "forward"]
    assert [span.layer for span in forward] == ["fc0", "fc1", "fc2", "fc3"]
    assert all(span.start_s >= gathered for span, gathered in zip(forward, gathers, strict=False))
