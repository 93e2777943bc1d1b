"""`paceline models`: the built-in networks."""

from __future__ import annotations

from paceline.cli.console import JsonOption, output_listing

EXAMPLE = "Example: paceline models --json -"


def models(json: JsonOption = None) -> None:
    """List the built-in networks, their parameters and layers."""
    from paceline.api.listing import models as known_models

    output_listing(known_models(), json)
