"""The curve of a simulated scaling, as PNG and SVG: throughput beside the ideal, and the time of an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.errors import OutputError
from paceline.reporting.colours import LIGHT, colour_of
from paceline.simulation.scaling import MachineScaling, Scaling

CURVE = "scaling.png"


def write_curve(scaling: Scaling, directory: Path) -> list[Path]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings: dict[Any, Any] = {
        "font.size": 9, "svg.fonttype": "none", "axes.edgecolor": LIGHT["rule"], "text.parse_math": False,
        "svg.hashsalt": "paceline",
    }  # fmt: skip
    shown = [each for each in scaling.machines if each.outcomes]
    known = any(outcome.epoch_s for each in shown for outcome in each.outcomes)
    with pyplot.rc_context(settings):
        figure, all_axes = pyplot.subplots(1, 2 if known else 1, figsize=(9, 3.6), layout="constrained", squeeze=False)
        for place, each in enumerate(shown):
            _draw_machine(each, place, all_axes[0])
        titles = ("samples/s (dotted: ideal)", "s/epoch")
        for axes, title in zip(all_axes[0], titles, strict=False):
            axes.set_title(title, loc="left", fontsize=10)
            axes.set_xlabel("workers")
            axes.set_ylim(bottom=0)
            axes.grid(axis="y", color=LIGHT["rule"], linewidth=0.6)
            axes.xaxis.get_major_locator().set_params(integer=True)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
        figure.suptitle(f"{scaling.workload.network} with {scaling.strategy.name}", x=0.01, ha="left", fontsize=11)
        if len(shown) > 1:
            figure.legend(
                *all_axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
            )  # fmt: skip
        paths = [directory / f"scaling.{ending}" for ending in ("png", "svg")]
        try:
            for path in paths:
                figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise OutputError(f"`out={str(directory)!r}` cannot be written: {error.strerror or error}") from error
        finally:
            pyplot.close(figure)
    return paths


def _draw_machine(each: MachineScaling, place: int, all_axes: Any) -> None:
    outcomes = sorted(each.outcomes, key=lambda outcome: outcome.workers)
    workers = [outcome.workers for outcome in outcomes]
    colour = colour_of("", place)
    rates = [outcome.samples_per_s for outcome in outcomes]
    all_axes[0].plot(workers, rates, marker=".", color=colour, label=each.machine)
    ideal = [outcome.samples_per_s / outcome.efficiency for outcome in outcomes]
    all_axes[0].plot(workers, ideal, ":", color=colour, linewidth=1)
    if len(all_axes) > 1:
        all_axes[1].plot(workers, [outcome.epoch_s for outcome in outcomes], marker=".", color=colour)
