"""The built-in networks: build one for given data, list them, name the layers of any module."""

from __future__ import annotations

from paceline.networks.building import build
from paceline.networks.describing import Description, Layer, built_in_networks, layers
from paceline.networks.known import needs_labels

__all__ = ["Description", "Layer", "build", "built_in_networks", "layers", "needs_labels"]
