"""Devices that share a bus: iteration times with and without prefetching, beside the arithmetic model."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.cost.shared_bus import SharedBus
from paceline.formatting import count, duration, median_of, percent
from paceline.measurement.feeding import STAND_INS, Feeding
from paceline.reporting.colours import line_styles
from paceline.reporting.figure import Column, Figure, Section, TableBlock, View, listing, section, table
from paceline.results.labels import grouped
from paceline.results.noise import LEAST_GAIN

WAYS = {False: "without prefetching", True: "with prefetching"}


def expected_s(made: Feeding) -> float:
    """The iteration time by arithmetic: of the bus, or of decoding and computing."""
    return SharedBus(made.refresh_s, 1.0, made.devices).iteration_s(made.compute_s, ahead=made.ahead)


def feeding(found: Sequence[Feeding]) -> Section | None:
    on_bus = [made for made in found if made.what == STAND_INS]
    of_images = [made for made in found if made.what != STAND_INS]
    blocks = (_on_bus(on_bus), _of_images(of_images), _rows(found))
    return section("feeding", "Data transfer", _sentences(on_bus, of_images), blocks=blocks)


def _sentences(on_bus: Sequence[Feeding], of_images: Sequence[Feeding]) -> list[str]:
    said = []
    if on_bus:
        said += [feeding_sentence(on_bus), arithmetic_sentence(on_bus)]
        first = on_bus[0]
        said.append(
            f"A transfer occupies the bus for {duration(first.refresh_s)}, then a device computes for "
            f"{duration(first.compute_s)}. Bus and devices are emulated with these times; the threads and queues "
            "between them are the ones that training uses."
        )
    if of_images:
        said.append(
            "With prefetching, other processes decode the next batch of images while the network computes. On a CPU "
            "both need cores, so computing takes longer during decoding."
        )
    return said


def feeding_sentence(on_bus: Sequence[Feeding]) -> str:
    """Up to how many devices prefetching hides the transfers."""
    ways = {(made.devices, made.ahead): made.iteration_s.median_s for made in on_bus}
    saved = {n: 1 - ways[n, True] / ways[n, False] for n, ahead in sorted(ways) if ahead and (n, False) in ways}
    helped = [n for n, share in saved.items() if share > LEAST_GAIN]
    if helped:
        most = max(helped, key=lambda n: saved[n])
        devices = count(most, "emulated device")
        said = f"Prefetching shortens an iteration by {percent(saved[most], 0)} with {devices} on one bus"
        rest = [n for n in saved if n > max(helped)]
        return f"{said}; from {rest[0]} devices on, the bus is saturated and it does not help." if rest else f"{said}."
    return "Prefetching does not shorten an iteration here."


def arithmetic_sentence(on_bus: Sequence[Feeding]) -> str:
    worst = max(abs(made.iteration_s.median_s / expected_s(made) - 1) for made in on_bus)
    return f"Measured iteration times differ from the arithmetic model by at most {percent(worst)}."


def _on_bus(found: Sequence[Feeding]) -> Figure | None:
    if not found:
        return None
    rows: list[tuple[str, int, float, float]] = []
    for (ahead, devices), same in grouped(found, lambda made: (made.ahead, made.devices)).items():
        useful = 100 * median_of(made.compute_s for made in same)
        lasted = median_of(made.iteration_s.median_s for made in same)
        expected = median_of(map(expected_s, same))
        rows.append((f"{WAYS[ahead]}, measured", devices, lasted, useful / lasted))
        rows.append((f"{WAYS[ahead]}, model", devices, expected, useful / expected))
    data = table(("line", "devices", Column("iteration", "s"), Column("computing", "%")), sorted(rows))
    styles = line_styles(data.values("line"), "model")
    options = {"line": "line", "x": "devices", "whole": True, "zero": True, "styles": styles}
    views = (
        View("iteration time", data, {**options, "y": "iteration"}),
        View("share of time computing", data, {**options, "y": "computing"}),
    )
    title = "Iteration time by devices on one bus"
    return Figure("feeding-bus", title, "lines", views, feeding_sentence(found), wide=True)


def _of_images(found: Sequence[Feeding]) -> Figure | None:
    if not found:
        return None
    rows = [(_name(m), m.iteration_s.median_s, expected_s(m), m.refresh_s, m.compute_s) for m in found]
    named = (Column(name, "s") for name in ("measured", "model", "decoding", "computing"))
    view = View("", table(("network", *named), rows), {"category": "network", "values": ["model", "measured"]})
    says = "; ".join(f"{name}: {duration(seconds)} per iteration" for name, seconds, *_ in rows) + "."
    note = "Model: decoding plus computing, each measured by itself; with prefetching, the longer of the two."
    return Figure("feeding-images", "Iteration time with image decoding", "bars", (view,), says, note, wide=True)


def _name(made: Feeding) -> str:
    network = made.conditions.get("network", "network")
    return f"{network}, batch {made.conditions.get('batch', '?')}, {WAYS[made.ahead]}"


def _rows(found: Sequence[Feeding]) -> TableBlock | None:
    columns = (
        "what", "devices", "batches", Column("transfer", "s"), Column("computing", "s"), Column("iteration", "s"),
        Column("model", "s"), Column("model error", "%"), Column("waiting for data", "s"), Column("useful", "%"),
    )  # fmt: skip
    rows = [
        (
            "emulated devices" if made.what == STAND_INS else _name(made).rpartition(",")[0],
            made.devices, WAYS[made.ahead], made.refresh_s, made.compute_s, made.iteration_s.median_s, expected_s(made),
            100 * (expected_s(made) / made.iteration_s.median_s - 1), made.waiting_s, 100 * made.useful_share,
        )
        for made in found
    ]  # fmt: skip
    return listing("feeding-rows", "All measurements", columns, rows)
