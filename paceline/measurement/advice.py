"""What a measurement means: at most three sentences that follow from its numbers, each with what it promises."""

from __future__ import annotations

from paceline.measurement.measurement import LayerTime, Measurement

WORTH_SAYING = 0.05


def advice(m: Measurement) -> list[str]:
    """Sentences by the gain they promise, largest first."""
    total = sum(m.parts_s.values()) or 1.0
    found: list[tuple[float, str]] = []
    load = m.parts_s["load"] / total
    found.append((load, f"{load:.0%} of an iteration waits for data: fetched ahead, up to {_faster(load)} faster."))
    update = m.parts_s["update"] / total
    remedy = "--step flat does it in one pass" if m.step == "plain" else "twice the batch halves it"
    found.append((update / 2, f"{update:.0%} goes into the update: {remedy}, about {_faster(update / 2)} faster."))
    if m.idle_causes_s:
        cause = max(m.idle_causes_s, key=lambda name: m.idle_causes_s[name])
        remedy = {
            "host launching": "a captured step (--step graph) or a larger batch keeps it busy",
            "waiting for data": "more readers or data kept on the device keep it busy",
            "copying": "data kept on the device, or copied while it computes, keep it busy",
        }.get(cause, "fewer and larger kernels keep it busy")
        idle = m.parts_s["idle"] / total
        found.append((idle, f"The device idles {idle:.0%}, mostly {cause}: {remedy}, up to {_faster(idle)} faster."))
    found += [entry for layer in m.layers if (entry := _slow_layer(m, layer, total))]
    outside = sum(layer.total_s for layer in m.layers if layer.kind == "outside") / total
    found.append((outside / 2, f"{outside:.0%} is spent outside any module, between the layers and in the loss."))
    other = m.parts_s["other"] / total
    found.append(
        (other / 2, f"{other:.0%} is spent around the step, in the loop itself; a larger batch makes it count less.")
    )
    worth = sorted((entry for entry in found if entry[0] >= WORTH_SAYING), reverse=True)
    return [sentence for _, sentence in worth[:3]] or ["No part stands out: the time is in the layers' own arithmetic."]


def _slow_layer(m: Measurement, layer: LayerTime, total: float) -> tuple[float, str] | None:
    """A layer that reaches little of both what the device computes and what it moves."""
    share = (layer.forward_s.median_s + layer.backward_s.median_s) / total
    reached = max(layer.achieved_flops / (m.device_flops or 1.0), layer.achieved_bytes / (m.device_bytes or 1.0))
    if layer.kind in ("outside", "recompute", "whole") or reached <= 0.0 or reached > 0.5:
        return None
    gain = share * (1.0 - reached / 0.5)
    limit = (
        f"{layer.achieved_flops / m.device_flops:.0%} of the device's arithmetic"
        if layer.achieved_flops / m.device_flops >= layer.achieved_bytes / m.device_bytes
        else f"{layer.achieved_bytes / m.device_bytes:.0%} of the device's memory bandwidth"
    )
    return gain, f"{layer.name} takes {share:.0%} at {limit}: at half of it, {_faster(gain)} faster."


def _faster(saved: float) -> str:
    return f"{1.0 / max(1e-9, 1.0 - saved) - 1.0:.0%}"
