"""`paceline predict`: how long an iteration and an epoch will take, on this device or another, before running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from paceline.api.predict import PREDICTION, predict_workers, workers_calibration
from paceline.api.predict import predict as run
from paceline.cli.console import JsonOption, console_for, output_json, rows_table
from paceline.cli.options import WORKLOAD, OutOption, option, takes_settings
from paceline.cost.exchange import protocol_of
from paceline.cost.prediction import Prediction
from paceline.errors import InputError
from paceline.formatting import count, duration, percent
from paceline.record import dump, save
from paceline.strategy.presets import find_strategy

if TYPE_CHECKING:
    from paceline.cost.calibration import Calibration
    from paceline.simulation.divided_prediction import DividedPrediction
    from paceline.simulation.on_cluster import ClusterOutcome
    from paceline.simulation.pipeline_prediction import PipelinePrediction

    AnyPrediction = Prediction | PipelinePrediction | DividedPrediction

EXAMPLE = "Example: paceline predict vgg16 --data synthetic:3x224x224/1000 --batch 256 --device H200"

SHOWN_LAYERS = 20
_LAYER_PARTS = ("forward", "backward", "update")


@takes_settings("predict")
def predict(
    given: dict[str, Any],
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help=f"{WORKLOAD[:-1]}; or a saved measurement to extrapolate.")
    ],
    device: Annotated[
        str | None, option("Catalogue name, calibration file, cpu or cuda; default: this machine.")
    ] = None,
    link: Annotated[
        str | None,
        option("Link between the workers: a name from the catalogue, or a calibration with a network.", "NAME|FILE"),
    ] = None,
    out: OutOption = None,
    json: JsonOption = None,
) -> None:
    """Predict the time of an iteration, layer by layer, with a 90 % interval. Nothing is run."""
    strategy, workers = given.pop("strategy", "sync"), given.pop("workers", None) or 1
    divided = [name for name in ("pipeline", "tensor", "shard") if name in given]
    console, set_device = console_for(json), given.pop("device", None)
    device = set_device if device is None else device
    if divided:
        if len(divided) > 1:
            raise InputError(f"--{divided[0]} and --{divided[1]} are predicted one at a time: leave one out")
        if strategy != "sync":
            raise InputError(f"copies of a divided network train synchronously: leave out --strategy {strategy}")
        _predict_divided(workload, device, out, json, console, {**given, "workers": workers, "link": link})
        return
    if "microbatches" in given:
        raise InputError("--microbatches needs a --pipeline, e.g. --pipeline 2")
    if workers == 1 and (link is not None or strategy != "sync"):
        raise InputError(f"{'--strategy' if link is None else '--link'} needs several --workers, e.g. --workers 4")
    local = workers_calibration(device) if workers > 1 and link is None else None
    made = run(workload, device, out=out, **given)
    if local is not None and made.threads > (most := max(1, local.cores // workers)):
        made = run(workload, device, out=out, **{**given, "threads": most})
    together = _of_workers(made, workers, strategy, link, local) if workers > 1 else ""
    show(made, console)
    if together:
        console.print(together)
    if out is not None:
        console.print(f"saved to {out if out.suffix == '.json' else out / PREDICTION}")
    output_json(dump(made), json)


def _predict_divided(
    workload: str, device: str | None, out: Path | None, json: str | None, console: Console, given: dict[str, Any]
) -> None:
    from paceline.api.predict_divided import predict_divided
    from paceline.api.predict_pipeline import predict_pipeline

    made: AnyPrediction
    if "pipeline" in given:
        made = predict_pipeline(workload, device, **given)
        (rows, where, rest), file = _pipeline(made), "pipeline.json"
    else:
        made = predict_divided(workload, device, **given)
        (rows, where, rest), file = _divided(made), "divided.json"
    console.print(rows_table(rows, left=("layer", "layers"), wrap=True))
    console.print(f"{made.name} at batch {made.batch} on {where}")
    console.print(f"{_duration_and_rate('step', made.step_s, made)}; {rest}")
    if made.samples:
        console.print(_epoch(made))
    if out is not None:
        save(made, out if out.suffix == ".json" else out / file)
    output_json(dump(made), json)


def _pipeline(made: PipelinePrediction) -> tuple[list[dict[str, str]], str, str]:
    """A row per stage, where they are, and what else a step is."""
    rows = [
        {
            "stage": str(number), "layers": f"{stage.layers[0]} to {stage.layers[-1]}",
            "forward": _time(stage.forward_s), "backward": _time(stage.backward_s), "update": _time(stage.update_s),
            "idle": percent(stage.idle_share, 1), "memory": f"{stage.memory_bytes / 1e9:.2f} GB",
            "sent per step": f"{stage.sent_bytes / 1e6:.2f} MB",
        }
        for number, stage in enumerate(made.stages, start=1)
    ]  # fmt: skip
    stages = f"{made.replicas} × " * (made.replicas > 1) + count(len(made.stages), "stage")
    where = f"{stages} of {made.device} ({made.basis}), {made.microbatches} micro-batches, {made.schedule}"
    return rows, where, f"idle {percent(made.idle_share, 1)} of the passes"


def _divided(made: DividedPrediction) -> tuple[list[dict[str, str]], str, str]:
    """The same with a row for each of the slowest layers."""
    busiest = sorted(made.layers, key=lambda layer: -(layer.forward_s + layer.backward_s + layer.exchange_s))
    rows = [
        {
            "layer": layer.name, "forward": _time(layer.forward_s), "backward": _time(layer.backward_s),
            "exchange": _time(layer.exchange_s), "sent per step": f"{layer.sent_bytes / 1e6:.2f} MB",
        }
        for layer in made.layers
        if layer in busiest[:SHOWN_LAYERS]
    ]  # fmt: skip
    how = f"{made.replicas} × " * (made.replicas > 1) + f"{made.tensor} processes per layer"
    if made.shard == "fsdp":
        how = f"{count(made.replicas, 'worker')} that share parameters (fsdp)"
    sizes = f"{made.memory_bytes / 1e9:.2f} GB of memory, {made.sent_bytes / 1e6:.2f} MB sent per step"
    exchanges = percent(made.exchange_s / made.step_s, 1)
    return rows, f"{how}, {made.device} ({made.basis})", f"{exchanges} exchanges\nper process: {sizes}"


def show(made: Prediction, console: Console) -> None:
    ranked = sorted((layer for layer in made.layers if layer.total_s > 0), key=lambda layer: -layer.total_s)
    largest, others = {layer.name for layer in ranked[:SHOWN_LAYERS]}, ranked[SHOWN_LAYERS:]
    rows = [
        {
            "layer": layer.name, "kind": layer.kind,
            **{part: _time(getattr(layer, f"{part}_s")) for part in _LAYER_PARTS},
            "share": percent(layer.total_s / made.iteration_s, 1),
            "interval": f"{_time(layer.low_s)} to {_time(layer.high_s)}",
        }
        for layer in made.layers
        if layer.name in largest
    ]  # fmt: skip
    if others:
        sums = {part: sum(getattr(layer, f"{part}_s") for layer in others) for part in _LAYER_PARTS}
        rows.append({
            "layer": f"({count(len(others), 'smaller one')})", "kind": "",
            **{part: _time(seconds) for part, seconds in sums.items()},
            "share": percent(sum(sums.values()) / made.iteration_s, 1), "interval": "",
        })  # fmt: skip
    console.print(rows_table(rows, left=("layer", "kind"), wrap=True))
    parts = ", ".join(f"{name} {percent(s / made.iteration_s, 1)}" for name, s in made.parts_s.items() if s > 0)
    threads = f", {count(made.threads, 'thread')}" if made.threads else ""
    there = float(made.conditions.get("device memory", "inf"))
    too_much = f", more than the {there / 1e9:,.2f} GB of the device" if made.memory_bytes > there else ""
    lines = [
        f"{made.name} at batch {made.batch} on {made.device} ({made.basis}), "
        f"step {made.step}, {made.precision}{threads}",
        _duration_and_rate("iteration", made.iteration_s, made),
        f"parts: {parts}",
        *([_epoch(made)] if made.samples else []),
        f"memory: {made.memory_bytes / 1e9:.2f} GB{too_much}; roofline estimate: {_time(made.roofline_s)}",
    ]
    if made.unknown:
        lines.append(
            f"not calibrated: {', '.join(made.unknown)}; treated as a pass over their elements, interval widened"
        )
    console.print("\n".join(lines))


def _duration_and_rate(what: str, seconds: float, made: AnyPrediction) -> str:
    interval = f"90 % interval: {_time(made.low_s)} to {_time(made.high_s)}"
    return f"{what}: {_time(seconds)} ({interval}), {made.samples_per_s:,.0f} samples/s"


def _epoch(made: AnyPrediction) -> str:
    return f"epoch of {made.samples:,} samples: {_time(made.epoch_s)}"


def _of_workers(made: Prediction, workers: int, strategy: str, link: str | None, local: Calibration | None) -> str:
    chosen = find_strategy(strategy)
    found = predict_workers(made, workers, chosen, link, local)
    where = f"workers, {strategy}, over {link}" if link is not None else f"local workers, {strategy}"
    return (
        f"{workers} {where}: {_time(found.step_s)} per worker step, {_time(found.epoch_s)} per epoch, "
        f"{found.samples_per_s:,.0f} samples/s, efficiency {100 * found.efficiency:.1f} %; bound by {found.bound}"
        f"{'' if local is None else _how_known(found, strategy, protocol_of(chosen), local)}"
    )


def _how_known(found: ClusterOutcome, strategy: str, protocol: str, local: Calibration) -> str:
    if found.calibrated:
        return "; exchange as calibrated"
    if tried := [str(cost.workers) for cost in local.exchange if cost.strategy == protocol]:
        return f"; exchange simulated ({strategy} was calibrated with {', '.join(tried)})"
    return f"; exchange simulated ({strategy} was not calibrated: run paceline calibrate --local-workers)"


def _time(seconds: float) -> str:
    return duration(seconds) if seconds >= 5e-8 else ""
