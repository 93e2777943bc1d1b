"""`paceline evaluate`: how well a saved run does on test data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.console import JsonOption, TrustOption, console_for, output_json
from paceline.cli.options import DataDirOption

EXAMPLE = "Example: paceline evaluate runs/lenet --data fashion-mnist"


def evaluate(
    run: Annotated[Path, typer.Argument(help="Directory of a run, or its checkpoint.")],
    data: Annotated[str | None, typer.Option(help="Other data than the run's own.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    data_dir: DataDirOption = None,
    trust: TrustOption = False,
    json: JsonOption = None,
) -> None:
    """Test accuracy and loss of a run's saved parameters."""
    from paceline.api.evaluate import evaluate as score
    from paceline.cli.progress import accuracies
    from paceline.record import dump

    result = score(run, data, device, data_dir=data_dir, trust=trust)
    reached = accuracies(result.accuracy, result.top_accuracy, result.workload.top)
    console_for(json).print(
        f"{result.workload.network} on {result.data}: {reached}"
        f"  loss {result.loss:.4f}  ({result.samples:,} test samples)",
        markup=False,
    )
    output_json(dump(result), json)
