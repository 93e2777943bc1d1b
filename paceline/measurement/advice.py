"""Advice from a measurement: at most three sentences, each with the speedup it could bring."""

from __future__ import annotations

from paceline.formatting import percent
from paceline.measurement.measurement import LayerTime, Measurement

MIN_GAIN = 0.05
"""Advice that would save a smaller share of an iteration is left out."""
MOST_OFF = 0.1


def parts_are_known(m: Measurement) -> bool:
    """Whether the parts add up to the iteration well enough to state shares and gains."""
    return abs(m.accounted - 1.0) <= MOST_OFF


def advice(m: Measurement) -> list[str]:
    """Sentences, largest possible gain first."""
    if not parts_are_known(m):
        return [
            f"The parts add up to {percent(m.accounted, 0)} of an iteration, too far off for advice: measure again, "
            "with nothing else running."
        ]
    total = m.iteration_s.mean_s or 1.0
    load, update, loop = (m.parts_s.get(part, 0.0) / total for part in ("load", "update", "loop"))
    outside = sum(layer.total_s for layer in m.layers if layer.kind == "outside") / total
    flat = "the flat step updates them in one pass" if m.step == "plain" else "twice the batch halves its share"
    found = [
        (load, f"{percent(load, 1)} of an iteration waits for data: prefetching could make it {_faster(load)} faster."),
        (update / 2, f"{percent(update, 1)} is the optimizer update: {flat}, about {_faster(update / 2)} faster."),
        (outside / 2, f"{percent(outside, 1)} is spent outside any module: between layers and in the loss."),
        (loop / 2, f"{percent(loop, 1)} is spent in the training loop itself; a larger batch reduces its share."),
        *(entry for layer in m.layers if (entry := _slow_layer(m, layer, total))),
    ]
    if m.idle_causes_s:
        found.append(_idle(m, m.parts_s["idle"] / total))
    worth = sorted((entry for entry in found if entry[0] >= MIN_GAIN), reverse=True)
    return [sentence for _, sentence in worth[:3]] or [
        "No bottleneck stands out: the time is spent computing the layers."
    ]


def _idle(m: Measurement, share: float) -> tuple[float, str]:
    cause = max(m.idle_causes_s, key=lambda name: m.idle_causes_s[name])
    remedy = {
        "host launching": "a captured step (step graph) or a larger batch keeps it busy",
        "waiting for data": "more readers or data kept on the device keep it busy",
        "copying": "data kept on the device, or copied while it computes, keeps it busy",
    }.get(cause, "fewer and larger kernels keep it busy")
    return (
        share,
        f"The device is idle {percent(share, 1)} of the time ({cause}): {remedy}, {_faster(share)} faster.",
    )


def _slow_layer(m: Measurement, layer: LayerTime, total: float) -> tuple[float, str] | None:
    """Advice on a layer that reaches less than half of both the device's peak arithmetic and its bandwidth."""
    share = (layer.forward_s.mean_s + layer.backward_s.mean_s) / total
    reached = max(layer.achieved_flops / (m.device_flops or 1.0), layer.achieved_bytes / (m.device_bytes or 1.0))
    if layer.kind in ("outside", "recompute", "whole") or reached <= 0.0 or reached > 0.5:
        return None
    gain = share * (1.0 - reached / 0.5)
    limit = (
        f"{percent(layer.achieved_flops / m.device_flops, 1)} of the device's peak FLOP/s"
        if layer.achieved_flops / m.device_flops >= layer.achieved_bytes / m.device_bytes
        else f"{percent(layer.achieved_bytes / m.device_bytes, 1)} of the device's memory bandwidth"
    )
    return (
        gain,
        f"{layer.name} takes {percent(share, 1)} of an iteration, at {limit}; at 50 %, iterations would be "
        f"{_faster(gain)} faster.",
    )


def _faster(saved: float) -> str:
    return percent(1.0 / max(1e-9, 1.0 - saved) - 1.0, 1)
