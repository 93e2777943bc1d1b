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
    from paceline.simulation.on_cluster import ClusterOutcome

EXAMPLE = "Example: paceline predict vgg16 --data synthetic:3x224x224/1000 --batch 256 --device H200"

SHOWN_LAYERS = 20
_LAYER_PARTS = ("forward", "backward", "update")


@takes_settings("predict")
def predict(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help=f"{WORKLOAD[:-1]}; or a saved measurement to extrapolate.")
    ],
    device: Annotated[
        str | None, option("Catalogue name, calibration file, cpu or cuda; default: this machine.", "TEXT")
    ] = None,
    link: Annotated[
        str | None,
        option("Link between the workers: a name from the catalogue, or a calibration with a network.", "NAME|FILE"),
    ] = None,
    out: OutOption = None,
    json: JsonOption = None,
    *,
    given: dict[str, Any],
) -> None:
    """Predict the time of an iteration, layer by layer, with a 90 % interval. Nothing is run."""
    strategy, workers = given.pop("strategy", "sync"), given.pop("workers", None) or 1
    divided = [name for name in ("pipeline", "tensor", "shard") if name in given]
    if divided:
        if len(divided) > 1:
            raise InputError(f"--{divided[0]} and --{divided[1]} are predicted one at a time: leave one out")
        if strategy != "sync":
            raise InputError(f"copies of a divided network train synchronously: leave out --strategy {strategy}")
        one = _pipeline if "pipeline" in given else _divided
        one(workload, device or given.pop("device", None), workers, link, out, json, given)
        return
    if "microbatches" in given:
        raise InputError("--microbatches needs a --pipeline, e.g. --pipeline 2")
    if workers == 1 and (link is not None or strategy != "sync"):
        raise InputError(f"{'--strategy' if link is None else '--link'} needs several --workers, e.g. --workers 4")
    local = workers_calibration(device) if workers > 1 and link is None else None
    console = console_for(json)
    set_device = given.pop("device", None)
    device = set_device if device is None else device
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


def _pipeline(
    workload: str, device: str | None, workers: int, link: str | None, out: Path | None, json: str | None,
    given: dict[str, Any],
) -> None:  # fmt: skip
    from paceline.api.predict_pipeline import predict_pipeline

    made = predict_pipeline(workload, device, workers=workers, link=link, **given)
    console = console_for(json)
    rows = [
        {
            "stage": str(number), "layers": f"{stage.layers[0]} to {stage.layers[-1]}",
            "forward": _time(stage.forward_s), "backward": _time(stage.backward_s), "update": _time(stage.update_s),
            "idle": percent(stage.idle_share, 1), "memory": f"{stage.memory_bytes / 1e9:.2f} GB",
            "sent per step": f"{stage.sent_bytes / 1e6:.2f} MB",
        }
        for number, stage in enumerate(made.stages, start=1)
    ]  # fmt: skip
    console.print(rows_table(rows, left=("layers",), wrap=True))
    copies = f"{made.replicas} × " * (made.replicas > 1)
    lines = [
        f"{made.name} at batch {made.batch} on {copies}{count(len(made.stages), 'stage')} of {made.device} "
        f"({made.basis}), {made.microbatches} micro-batches, {made.schedule}",
        f"step: {_time(made.step_s)} (90 % interval: {_time(made.low_s)} to {_time(made.high_s)}), "
        f"{made.samples_per_s:,.0f} samples/s; idle {percent(made.idle_share, 1)} of the passes",
    ]
    if made.samples:
        lines.append(f"epoch of {made.samples:,} samples: {_time(made.epoch_s)}")
    console.print("\n".join(lines))
    if out is not None:
        save(made, out if out.suffix == ".json" else out / "pipeline.json")
    output_json(dump(made), json)


def _divided(
    workload: str, device: str | None, workers: int, link: str | None, out: Path | None, json: str | None,
    given: dict[str, Any],
) -> None:  # fmt: skip
    from paceline.api.predict_divided import predict_divided

    made = predict_divided(workload, device, workers=workers, link=link, **given)
    console = console_for(json)
    busiest = sorted(made.layers, key=lambda layer: -(layer.forward_s + layer.backward_s + layer.exchange_s))
    rows = [
        {
            "layer": layer.name, "forward": _time(layer.forward_s), "backward": _time(layer.backward_s),
            "exchange": _time(layer.exchange_s), "sent per step": f"{layer.sent_bytes / 1e6:.2f} MB",
        }
        for layer in made.layers
        if layer in busiest[:SHOWN_LAYERS]
    ]  # fmt: skip
    console.print(rows_table(rows, left=("layer",), wrap=True))
    how = (
        f"{count(made.replicas, 'worker')} that share parameters (fsdp)" if made.shard == "fsdp"
        else f"{made.replicas} × " * (made.replicas > 1) + f"{made.tensor} processes per layer"
    )  # fmt: skip
    lines = [
        f"{made.name} at batch {made.batch} on {how}, {made.device} ({made.basis})",
        f"step: {_time(made.step_s)} (90 % interval: {_time(made.low_s)} to {_time(made.high_s)}), "
        f"{made.samples_per_s:,.0f} samples/s; {percent(made.exchange_s / made.step_s, 1)} exchanges",
        f"per process: {made.memory_bytes / 1e9:.2f} GB of memory, {made.sent_bytes / 1e6:.2f} MB sent per step",
    ]
    if made.samples:
        lines.append(f"epoch of {made.samples:,} samples: {_time(made.epoch_s)}")
    for line in lines:
        console.print(line, highlight=False)
    if out is not None:
        save(made, out if out.suffix == ".json" else out / "divided.json")
    output_json(dump(made), json)


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
    parts = ", ".join(
        f"{name} {percent(took / made.iteration_s, 1)}" for name, took in made.parts_s.items() if took > 0
    )
    threads = f", {count(made.threads, 'thread')}" if made.threads else ""
    lines = [
        f"{made.name} at batch {made.batch} on {made.device} ({made.basis}), "
        f"step {made.step}, {made.precision}{threads}",
        f"iteration: {_time(made.iteration_s)} (90 % interval: {_time(made.low_s)} to {_time(made.high_s)}), "
        f"{made.samples_per_s:,.0f} samples/s",
        f"parts: {parts}",
    ]
    if made.samples:
        lines.append(f"epoch of {made.samples:,} samples: {_time(made.epoch_s)}")
    there = float(made.conditions.get("device memory", "inf"))
    too_much = f", more than the {there / 1e9:,.2f} GB of the device" if made.memory_bytes > there else ""
    lines.append(f"memory: {made.memory_bytes / 1e9:.2f} GB{too_much}; roofline estimate: {_time(made.roofline_s)}")
    if made.unknown:
        lines.append(
            f"not calibrated: {', '.join(made.unknown)}; treated as a pass over their elements, interval widened"
        )
    console.print("\n".join(lines))


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
