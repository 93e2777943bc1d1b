"""Device rates and the cost of marks are measured once for these tests; they would take a second per clock."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from paceline.measurement import layer_clock, measured_step, measuring
from paceline.measurement.mark_cost import mark_cost_s
from paceline.measurement.rates import device_rates


@pytest.fixture(autouse=True, scope="package")
def machine_is_asked_once() -> Iterator[None]:
    rates, costs = cache(device_rates), cache(mark_cost_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_clock, "device_rates", rates)
        patch.setattr(measuring, "device_rates", rates)
        patch.setattr(layer_clock, "mark_cost_s", lambda: dict(costs()))
        patch.setattr(measured_step, "mark_cost_s", lambda: dict(costs()))
        yield
