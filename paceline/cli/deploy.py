"""`paceline deploy`: the file that starts the cluster which a plan recommends, and trains on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.api.deploy import deploy as write
from paceline.cli.console import JsonOption, check_place, console_for, output_json
from paceline.cli.options import OUTPUT, given_path, path_option, takes_settings
from paceline.deployment.settings import TARGETS, DeploymentSettings

EXAMPLE = "Example: paceline deploy kubernetes plans/resnet --image registry/paceline --out rayjob.yaml"


@takes_settings("deploy", DeploymentSettings)
def deploy(
    given: dict[str, Any],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help=f"{', '.join(TARGETS)}.", autocompletion=lambda: list(TARGETS))
    ],
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", parser=given_path, help="A saved plan: its directory or file.")
    ],
    out: Annotated[Path | None, path_option("The file; standard output by default.", "FILE", OUTPUT)] = None,
    json: JsonOption = None,
) -> None:
    """Write the job file that starts the cluster of a plan and trains on it."""
    from paceline.deployment.writing import start_command

    if out is not None:
        check_place(out, "--out")
    text = write(target, plan, out, **given)
    if out is not None:
        console_for(json).print(f"saved to {out}; start with: {start_command(target, out)}")
    elif json != "-":
        print(text, end="")
    output_json({"target": target, "file": out, "text": text}, json)
