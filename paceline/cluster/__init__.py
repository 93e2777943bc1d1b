"""Hardware to train on: devices, links, machines and clusters with prices, from a catalogue or a file."""

from __future__ import annotations

from paceline.cluster.catalogue import (
    find_device,
    find_link,
    find_machine,
    known_devices,
    known_links,
    known_machines,
)
from paceline.cluster.cluster import Cluster, MachineCount
from paceline.cluster.cluster_file import cluster_from_table, read_cluster
from paceline.cluster.device import PRECISIONS, Device, Peak
from paceline.cluster.link import Link
from paceline.cluster.machine import HOURS_A_YEAR, DeviceCount, Machine
from paceline.cluster.price_table import PriceRow, price_table
from paceline.cluster.skypilot import Offer, SkyPilotCatalogue, machines_of, read_skypilot

__all__ = [
    "HOURS_A_YEAR",
    "PRECISIONS",
    "Cluster",
    "Device",
    "DeviceCount",
    "Link",
    "Machine",
    "MachineCount",
    "Offer",
    "Peak",
    "PriceRow",
    "SkyPilotCatalogue",
    "cluster_from_table",
    "find_device",
    "find_link",
    "find_machine",
    "known_devices",
    "known_links",
    "known_machines",
    "machines_of",
    "price_table",
    "read_cluster",
    "read_skypilot",
]
