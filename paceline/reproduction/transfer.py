"""Transfer: the arithmetic of a shared bus, as it was published and as devices that are fed behave."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from paceline import record
from paceline.cost.shared_bus import SharedBus
from paceline.formatting import listed, middle, percent
from paceline.measurement.feeding import STAND_INS, Feeding
from paceline.measurement.links import LinkMeasurement, measure_links
from paceline.reporting.sections.feeding import WAYS, expected_s, feeding_sentence
from paceline.reproduction.study import FOLDER, Beside
from paceline.results.comparison_rows import ExtraTable, Finding, PredictionRow, PublishedRow
from paceline.results.records import find_records
from paceline.results.table import ResultsTable

QUICK = (
    "This is the quick version: a tenth of the times, 25.4 ms for a refresh and 50 ms of computing, once instead of "
    "three times. Measured seconds that stand beside published ones are multiplied by ten."
)
SOURCE = "a guide of 2018"
PUBLISHED_REFRESH_S = 0.253968
BUS = SharedBus(8e9, 31.5e9, 4)
COMPUTE_S = 0.5
LINKS = "links.json"


def beside(found: ResultsTable, directory: Path) -> Beside:
    fed = [made for _, made in find_records([directory]).feedings]
    on_bus = [made for made in fed if made.what == STAND_INS]
    made = Beside(published=_published(on_bus), predictions=_predictions(on_bus))
    if on_bus:
        made.findings = [Finding(feeding_sentence(on_bus), "feeding-bus")]
    if images := _images(fed):
        made.findings.append(Finding(images, "feeding-images"))
    made.tables = [_refreshing(_links(directory))]
    return made


def _links(directory: Path) -> LinkMeasurement:
    """Of this machine, measured once."""
    path = directory / FOLDER / LINKS
    if path.exists():
        before = record.load(path)
        assert isinstance(before, LinkMeasurement)
        return before
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    measured = measure_links(device, directory)
    record.save(measured, path)
    return measured


def _published(on_bus: list[Feeding]) -> list[PublishedRow]:
    """Theirs; ours by the same arithmetic, and as it was measured with four devices that ask for each batch."""
    four = [made for made in on_bus if made.devices == BUS.devices and not made.ahead]
    scale = PUBLISHED_REFRESH_S / four[0].refresh_s if four else math.nan
    lasted = scale * middle(made.iteration_s.median_s for made in four)
    idle = lasted - BUS.refresh_s - COMPUTE_S
    useful = 100 * COMPUTE_S / (COMPUTE_S + idle)
    arithmetic: list[tuple[str, float, float, str]] = [
        ("refreshing 8 GB of one device", PUBLISHED_REFRESH_S, BUS.refresh_s, "s"),
        ("refreshing three devices", 0.7619, BUS.others_s, "s"),
        ("refreshing four devices", 1.015873, BUS.all_s, "s"),
        ("idling an iteration, four devices", 0.2619, BUS.idle_s(COMPUTE_S), "s"),
        ("useful share, four devices", 65.62, 100 * BUS.useful_share(COMPUTE_S), "%"),
    ]
    measured: list[tuple[str, float, float, str]] = [
        ("refreshing four devices", 1.015873, lasted, "s"),
        ("idling an iteration, four devices", 0.2619, idle, "s"),
        ("useful share, four devices", 65.62, useful, "%"),
    ]
    return [
        PublishedRow(f"{name}, {how}", theirs, ours, unit, SOURCE)
        for how, rows in (("by arithmetic", arithmetic), ("measured", measured))
        for name, theirs, ours, unit in rows
    ]


def _predictions(on_bus: list[Feeding]) -> list[PredictionRow]:
    rows = []
    for devices, ahead in sorted({(made.devices, made.ahead) for made in on_bus}):
        same = [made for made in on_bus if (made.devices, made.ahead) == (devices, ahead)]
        name = f"iteration of {devices} device{'s' * (devices != 1)}, {WAYS[ahead]}"
        rows.append(
            PredictionRow(name, expected_s(same[0]), measured=middle(made.iteration_s.median_s for made in same))
        )
    return rows


def _images(fed: list[Feeding]) -> str:
    """How long networks wait for images; a share says more than seconds where other programs run as well."""
    of_images = [made for made in fed if made.what != STAND_INS]
    said = []
    for network in dict.fromkeys(made.conditions.get("network", "") for made in of_images):
        mine = [made for made in of_images if made.conditions.get("network") == network]
        shares = [
            middle(made.waiting_s / made.iteration_s.median_s for made in mine if made.ahead == ahead)
            for ahead in (False, True)
        ]
        if all(map(math.isfinite, shares)):
            said.append(
                f"{network} waits for images {percent(shares[1], 0)} of an iteration instead of {percent(shares[0], 0)}"
            )
    return f"Where they are decoded ahead, {listed(said)}." if said else ""


def _refreshing(links: LinkMeasurement) -> ExtraTable:
    """What the guide's 8 GB would take over each link, here and elsewhere."""
    rows = [("PCIe 4.0 x16, published", "31.5", f"{BUS.refresh_s:.3f}")]
    rows += [("one SSD, published", "3.5", f"{8 / 3.5:.3f}"), ("five SSDs in RAID 0, published", "17", f"{8 / 17:.3f}")]
    rows += [
        (f"{speed.link}, here", f"{speed.bandwidth / 1e9:.3g}", f"{8e9 / speed.bandwidth:.3f}") for speed in links.links
    ]
    return ExtraTable("Refreshing 8 GB", ("link", "GB/s", "seconds"), tuple(rows))
