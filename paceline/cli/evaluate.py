"""`paceline evaluate`: test accuracy and loss of a saved run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.api.evaluate import evaluate as score
from paceline.cli.console import JsonOption, console_for, output_json
from paceline.cli.options import DataDirOption, TrustOption, option
from paceline.record import dump

EXAMPLE = "Example: paceline evaluate runs/lenet --data fashion-mnist"


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run, or a checkpoint.")],
    data: Annotated[str | None, option("Data source to evaluate on; default: the test data of the run.")] = None,
    device: Annotated[str | None, option("auto, cpu, cuda or cuda:N.")] = None,
    data_dir: DataDirOption = None,
    trust: TrustOption = False,
    json: JsonOption = None,
) -> None:
    """Evaluate the saved parameters of a run: accuracy and loss on test data."""
    from paceline.cli.progress import accuracies

    result = score(run, data, device, data_dir=data_dir, trust=trust)
    reached = accuracies(result.accuracy, result.top_accuracy, result.workload.top)
    metric = f"{result.metric_name} {result.metric:.4g}" if result.metric_name else ""
    told = "  ".join(filter(None, (reached, metric, f"loss {result.loss:.4f}", f"({result.samples:,} test samples)")))
    console_for(json).print(f"{result.workload.network} on {result.data}: {told}")
    output_json(dump(result), json)
