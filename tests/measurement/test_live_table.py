"""The live table shows parts and layers while a loop trains, and its drawing belongs to no iteration."""

from __future__ import annotations

import io
from time import perf_counter

import torch
from rich.console import Console
from torch import nn

from paceline.measurement import live_table
from paceline.measurement.layer_clock import LayerClock
from paceline.measurement.live_table import LiveTable
from tests.measurement.slow_layers import SlowLayer, assert_none_of_it_is_booked, slept_s


def train(clock: LayerClock, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in clock.batches(torch.randn(12, 3, 4)):
        model(x).sum().backward()
        optimizer.step()


def test_the_table_names_the_slowest_layer_first(monkeypatch):
    monkeypatch.setattr(live_table, "REDRAW_EVERY_S", 0.0)
    model = nn.Sequential(nn.Linear(4, 4), SlowLayer(0.003, 0.0))
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    with LayerClock(model, every=2, warm_up=1) as clock, LiveTable(clock.session, "mine", shown):
        train(clock, model)
    text = shown.file.getvalue()
    assert "mine: iteration" in text and "forward" in text and "backward ms" in text
    last = text[text.rindex("backward ms") :]
    assert last.index("1 ") < last.index("Sequential")


def test_drawing_belongs_to_no_iteration(monkeypatch):
    drawn_s = []
    monkeypatch.setattr(LiveTable, "redraw_if_due", lambda self: drawn_s.append(slept_s(0.02)))
    model = nn.Linear(4, 4)
    with LayerClock(model, every=2, warm_up=1, live=True) as clock:
        train(clock, model)
        start_s, since, before = perf_counter(), clock.session.number, len(drawn_s)
        train(clock, model)
        elapsed_s = perf_counter() - start_s
    assert clock.session.on_window is None
    assert_none_of_it_is_booked(clock, sum(drawn_s[before:]), elapsed_s, since)
    assert clock.measurement().overhead_s >= 5 * 0.02
