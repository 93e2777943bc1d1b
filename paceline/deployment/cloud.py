"""Which cloud a machine belongs to, and how Kubernetes labels its machine types and spot machines there.

The catalogue names machines and regions as their clouds do, so that their form tells the cloud.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.cluster import Machine

AZURE_TYPE = re.compile(r"(Standard_)?[A-Z]+[0-9]+[a-z]*(_[A-Za-z0-9]+)*_v[0-9]+")


@dataclass(frozen=True)
class SpotLabel:
    """The label of a spot machine; a taint with the same key and value keeps other pods away from it."""

    key: str
    value: str
    is_taint: bool


SPOT_LABELS = {
    "aws": SpotLabel("eks.amazonaws.com/capacityType", "SPOT", is_taint=False),
    "gcp": SpotLabel("cloud.google.com/gke-spot", "true", is_taint=True),
    "azure": SpotLabel("kubernetes.azure.com/scalesetpriority", "spot", is_taint=True),
}
"""Of the clouds' own Kubernetes services, with nodes that they manage."""


def cloud_of(machine: Machine) -> str:
    """aws, gcp, azure or lambda; empty for a machine that is not rented."""
    if machine.name.startswith("gpu_"):
        return "lambda"
    if AZURE_TYPE.fullmatch(machine.name):
        return "azure"
    if re.fullmatch(r"[a-z]+-[a-z]+[0-9]+", machine.region):
        return "gcp"
    return "aws" if re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9]+", machine.region) else ""


def instance_type_of(machine: Machine, cloud: str) -> str:
    """The cloud's own name of the machine, which in the catalogue may be followed by its accelerators."""
    name = machine.name.partition(" + ")[0]
    return f"Standard_{name}" if cloud == "azure" and not name.startswith("Standard_") else name
