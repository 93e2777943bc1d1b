"""Advice follows from where the time goes, largest gain first, and is not given where the parts do not add up."""

from __future__ import annotations

from paceline.measurement.advice import advice
from paceline.measurement.measurement import LayerTime, Measurement, Spread

PEAK = 1e12


def spread(seconds: float) -> Spread:
    return Spread(seconds, seconds, seconds, seconds)


def measured(accounted: float = 1.0, step: str = "plain", **parts_s: float) -> Measurement:
    """An iteration of 10 ms; what no part has is a layer's."""
    layer_s = 0.01 - sum(parts_s.values())
    half = spread(layer_s / 2)
    layer = LayerTime("fc", "Linear", 1, half, half, spread(0.0), False, 0.0, 0, 0, 0, 0, PEAK, PEAK)
    parts = {"forward": layer_s / 2, "backward": layer_s / 2, **parts_s}
    return Measurement(
        "net", 1, "cpu", "", step, 100, 20, spread(0.01), parts, parts, accounted, 0.0, 0.0, 0.0, (layer,), PEAK, PEAK,
        1,
    )  # fmt: skip


def test_the_largest_gain_comes_first():
    load, update = advice(measured(load=0.005, update=0.002))
    assert load.startswith("50.0 % of an iteration waits for data") and "100.0 % faster" in load
    assert update.startswith("20.0 % is the optimizer update: the flat step") and "11.1 % faster" in update


def test_small_gains_are_left_out():
    (said,) = advice(measured(load=0.0004))
    assert said.startswith("No bottleneck")


def test_the_remedy_suits_the_step():
    (said,) = advice(measured(step="flat", update=0.002))
    assert "twice the batch halves its share" in said


def test_parts_that_do_not_add_up_give_no_advice():
    for accounted in (1.4, 0.6):
        (said,) = advice(measured(accounted, load=0.008))
        assert "too far off for advice" in said and "faster" not in said
