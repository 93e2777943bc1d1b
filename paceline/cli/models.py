"""`paceline models`: the built-in networks."""

from __future__ import annotations

from paceline.cli.console import JsonOption, console_for, output_json

EXAMPLE = "Example: paceline models --json -"


def models(json: JsonOption = None) -> None:
    """List the built-in networks, their parameters and layers."""
    from rich.table import Table

    from paceline.api.listing import models as known_models
    from paceline.record import to_json
    from paceline.workload import BUILT_IN, Workload

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("network", "parameters", "layers", "input", "default data", "what it is"):
        table.add_column(column, justify="right" if column in ("parameters", "layers") else "left", overflow="fold")
    rows = []
    for network in known_models():
        size = "×".join(map(str, network.shape))
        data = BUILT_IN[network.name].get("data", Workload.data)
        table.add_row(
            network.name, f"{network.parameters:,}", str(len(network.layers)), size, data, network.description
        )
        rows.append(to_json(network))
    console_for(json).print(table, soft_wrap=False)
    output_json(rows, json)
