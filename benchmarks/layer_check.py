"""Are the layers right, not only their sum? Kernel times attributed in another way, through sequence numbers.

Paceline tells whose a kernel is by the moment of its launch. Here the profiler tells: a kernel belongs to the
operation that launched it, a forward operation to the module whose range it is in, and a backward operation to the
module of the forward operation with its sequence number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.step_loop import StepLoop, synchronise
from benchmarks.table import show, show_table
from paceline.measurement.measurement import Measurement
from paceline.step.build import assemble, load_data
from paceline.step.make import make_step
from paceline.workload import Workload

PREFIX = "layer "
NODE = "autograd::engine::evaluate_function"
OUTSIDE = "(outside any module)"
ROUNDS, ITERATIONS = 5, 10

Owner = tuple[str, str]


@contextmanager
def named_calls(network: nn.Module) -> Iterator[None]:
    """Every call of a module becomes a range of the profiler with the module's name."""
    ranges: list[record_function] = []
    handles = []

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            ranges.append(record_function(PREFIX + name))
            ranges[-1].__enter__()

        return hook

    def leave(*_: Any) -> None:
        ranges.pop().__exit__(None, None, None)

    for name, module in network.named_modules():
        handles.append(module.register_forward_pre_hook(enter(name or type(network).__name__)))
        handles.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def attribute(events: Iterable[Any], seconds_of: Callable[[Any], float]) -> dict[Owner, float]:
    """Seconds by (forward or backward, layer). Of operations that saw the same number the last one took it."""
    events = list(events)
    made_by: dict[int, tuple[float, str]] = {}
    for event in events:
        if event.sequence_nr >= 0 and _node_of(event) is None:
            start = event.time_range.start
            made_by[event.sequence_nr] = max(made_by.get(event.sequence_nr, (start, "")), (start, _layer_of(event)))
    found: dict[Owner, float] = {}
    for event in events:
        seconds = seconds_of(event)
        if seconds:
            node = _node_of(event)
            forward = ("forward", _layer_of(event))
            owner = forward if node is None else ("backward", made_by.get(node.sequence_nr, (0.0, OUTSIDE))[1])
            found[owner] = found.get(owner, 0.0) + seconds
    return found


def _ancestors(event: Any) -> Iterator[Any]:
    while event is not None:
        yield event
        event = event.cpu_parent


def _layer_of(event: Any) -> str:
    names = (e.name for e in _ancestors(event) if e.name.startswith(PREFIX))
    return next(names, PREFIX + OUTSIDE).removeprefix(PREFIX)


def _node_of(event: Any) -> Any:
    return next((e for e in _ancestors(event) if e.name.startswith(NODE)), None)


def kernel_s(event: Any) -> float:
    """What an operation launched itself; the range of an annotation is also drawn on the device, and is no kernel."""
    if getattr(event, "is_user_annotation", False) or event.name.startswith(PREFIX):
        return 0.0
    return 1e-6 * sum(kernel.duration for kernel in event.kernels)


def independent_layers(workload: Workload, device: torch.device, kind: str) -> dict[Owner, float]:
    """Seconds of kernels an iteration, by layer: the median of some rounds."""
    parts = assemble(workload, load_data(workload), device)
    step, _ = make_step(parts, kind)
    loop = StepLoop(step)
    loop.run(ITERATIONS)
    rounds = []
    for _ in range(ROUNDS):
        synchronise(device)
        with (
            profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler,
            named_calls(parts.network),
        ):
            loop.run(ITERATIONS)
            synchronise(device)
        rounds.append(attribute(profiler.events(), kernel_s))
    step.close()
    owners = {owner for found in rounds for owner in found}
    return {owner: median(found.get(owner, 0.0) for found in rounds) / ITERATIONS for owner in owners}


def compare_layers(m: Measurement, independent: dict[Owner, float]) -> list[dict[str, Any]]:
    """Every layer of at least 2 % of the iteration, with what the difference may be."""
    rows = []
    for layer in m.layers:
        ours = {"forward": layer.forward_s.median_s, "backward": layer.backward_s.median_s}
        theirs = {part: independent.get((part, layer.name), 0.0) for part in ours}
        own_s, other_s = sum(ours.values()), sum(theirs.values())
        share = max(own_s, other_s) / m.iteration_s.median_s
        if layer.name == OUTSIDE or share < 0.02:
            continue
        allowed_s = 0.05 * other_s if share >= 0.05 else max(0.1 * other_s, 10e-6)
        rows.append(
            {
                "layer": layer.name, "share": share, "ours_s": ours, "independent_s": theirs,
                "difference_s": own_s - other_s, "allowed_s": allowed_s, "agrees": abs(own_s - other_s) <= allowed_s,
            }
        )  # fmt: skip
    return rows


def check_layers(m: Measurement, workload: Workload, device: torch.device) -> list[dict[str, Any]]:
    """Compares a measurement with kernel times attributed independently, and prints the table."""
    rows = compare_layers(m, independent_layers(workload, device, m.step))

    def ms(seconds: dict[str, float]) -> str:
        return " + ".join(f"{1e3 * seconds[part]:.3f}" for part in ("forward", "backward"))

    show_table(
        f"layers of {m.name}, batch {m.batch}: forward + backward in ms, beside kernel times by sequence number",
        ("layer", "share", "Paceline", "independent", "difference", "allowed", ""),
        [
            [
                row["layer"],
                f"{row['share']:.1%}",
                ms(row["ours_s"]),
                ms(row["independent_s"]),
                f"{row['difference_s'] / max(1e-12, sum(row['independent_s'].values())):+.1%}",
                f"{1e6 * row['allowed_s']:.0f} µs",
                "PASS" if row["agrees"] else f"off by {1e6 * row['difference_s']:+.0f} µs",
            ]
            for row in rows
        ],
    )
    show("Layers of at least 5 % of the iteration may differ by 5 %, of 2 to 5 % by 10 % or 10 µs.")
    return rows
