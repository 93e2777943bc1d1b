"""`paceline models`: the built-in networks."""

from __future__ import annotations

from paceline.api.listing import models as known_models
from paceline.cli.console import JsonOption, output_listing

EXAMPLE = "Example: paceline models --json -"


def models(json: JsonOption = None) -> None:
    """List the built-in networks with their numbers of parameters and layers."""
    output_listing(known_models(), json)
