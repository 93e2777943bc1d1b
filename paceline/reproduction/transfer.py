"""Transfer: the arithmetic of a shared bus as published, and measured with emulated devices."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from paceline import record
from paceline.cost.shared_bus import SharedBus
from paceline.formatting import listed, median_of, percent
from paceline.measurement.feeding import STAND_INS, Feeding
from paceline.measurement.links import LinkMeasurement, measure_links
from paceline.reporting.sections.feeding import arithmetic_sentence, feeding_sentence
from paceline.reproduction.study import FOLDER, Conclusions
from paceline.results.comparison_rows import ExtraTable, Finding, PublishedRow
from paceline.results.records import find_records
from paceline.results.table import ResultsTable

PUBLISHED_REFRESH_S = 0.253968
BUS = SharedBus(8e9, 31.5e9, 4)
COMPUTE_S = 0.5
LINKS = "links.json"


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    fed = [made for _, made in find_records([directory]).feedings]
    on_bus = [made for made in fed if made.what == STAND_INS]
    made = Conclusions(published=_published(on_bus))
    if on_bus:
        made.findings = [Finding(feeding_sentence(on_bus), "feeding-bus"), Finding(arithmetic_sentence(on_bus))]
    if images := _images(fed):
        made.findings.append(Finding(images, "feeding-images"))
    made.tables = [_refreshing(_links(directory))]
    return made


def _links(directory: Path) -> LinkMeasurement:
    """The links of this machine, measured once."""
    path = directory / FOLDER / LINKS
    if path.exists():
        return record.load_as(path, LinkMeasurement)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    measured = measure_links(device, directory)
    record.save(measured, path)
    return measured


def _published(on_bus: list[Feeding]) -> list[PublishedRow]:
    """Published values beside the same arithmetic and four emulated devices without prefetching."""
    four = [made for made in on_bus if made.devices == BUS.devices and not made.ahead]
    scale = PUBLISHED_REFRESH_S / four[0].refresh_s if four else math.nan
    lasted = scale * median_of(made.iteration_s.median_s for made in four)
    idle = lasted - BUS.refresh_s - COMPUTE_S
    useful = 100 * COMPUTE_S / (COMPUTE_S + idle)
    arithmetic: list[tuple[str, float, float, str]] = [
        ("transfer of 8 GB to one device", PUBLISHED_REFRESH_S, BUS.refresh_s, "s"),
        ("transfer to three devices", 0.7619, BUS.others_s, "s"),
        ("transfer to four devices", 1.015873, BUS.all_s, "s"),
        ("idle time per iteration, four devices", 0.2619, BUS.idle_s(COMPUTE_S), "s"),
        ("time computing, four devices", 65.62, 100 * BUS.useful_share(COMPUTE_S), "%"),
    ]
    emulated: list[tuple[str, float, float, str]] = [
        ("transfer to four devices", 1.015873, lasted, "s"),
        ("idle time per iteration, four devices", 0.2619, idle, "s"),
        ("time computing, four devices", 65.62, useful, "%"),
    ]
    return [
        PublishedRow(f"{name}, {how}", theirs, ours, unit)
        for how, rows in (("arithmetic", arithmetic), ("emulated", emulated))
        for name, theirs, ours, unit in rows
    ]


def _images(fed: list[Feeding]) -> str:
    """The share of an iteration that networks wait for images; seconds would depend on other load."""
    of_images = [made for made in fed if made.what != STAND_INS]
    said = []
    for network in dict.fromkeys(made.conditions.get("network", "") for made in of_images):
        mine = [made for made in of_images if made.conditions.get("network") == network]
        shares = [
            median_of(made.waiting_s / made.iteration_s.median_s for made in mine if made.ahead == ahead)
            for ahead in (False, True)
        ]
        if all(map(math.isfinite, shares)):
            said.append(
                f"{network} waits for images {percent(shares[1], 0)} of the time instead of {percent(shares[0], 0)}"
            )
    once = " (one run each)" * (len(of_images) == 2 * len(said))
    return f"With prefetching, {listed(said)}{once}." if said else ""


def _refreshing(links: LinkMeasurement) -> ExtraTable:
    """The time to transfer 8 GB over each link, published and here."""
    speeds = {"PCIe 4.0 x16, published": 31.5, "one SSD, published": 3.5, "five SSDs in RAID 0, published": 17.0}
    speeds |= {f"{speed.link}, here": speed.bandwidth / 1e9 for speed in links.links}
    rows = ((link, f"{speed:.3g}", f"{8 / speed:.3f}") for link, speed in speeds.items())
    return ExtraTable("Transfer of 8 GB", ("link", "GB/s", "seconds"), tuple(rows))
