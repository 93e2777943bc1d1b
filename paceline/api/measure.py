"""`paceline.measure`: where the time of an iteration goes, layer by layer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.settings import as_optional_path, check_device, check_whole, split
from paceline.given_workload import given_workload

if TYPE_CHECKING:
    from paceline.given_workload import WorkloadLike
    from paceline.measurement.links import LinkMeasurement
    from paceline.measurement.measurement import Measurement


def measure(
    workload: WorkloadLike,
    *,
    iterations: int | None = None,
    step: str = "auto",
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    watch: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Measurement:
    """Measure the forward, backward and update time of every layer.

    The step that would train the workload runs for some `iterations`, and a sample of them is timed layer by layer. By
    default there are 200, and on a CPU as many as take two seconds.
    `workload` and its settings (`data`, `batch`, `device`, `precision`, ...) are as for `paceline.train`; a module is
    copied and left as it is. `out` is a new directory for the record, tables, a trace, plots and a page. `watch` is
    called with the number of iterations that are done and that are planned.

    >>> found = paceline.measure("lenet5", data="digits", batch=32, iterations=40)
    >>> "conv1" in [layer.name for layer in found.layers], found.accounted > 0.5
    (True, True)
    """
    from paceline.measurement.measuring import measure as run
    from paceline.output_directory import claimed
    from paceline.step.failures import explained
    from paceline.training.step_choice import choose_step

    own, _ = split(settings, measure)
    cache = as_optional_path(data_dir, "data_dir")
    check_whole(iterations, "iterations", 1)
    with (
        given_workload(workload, own) as resolved,
        explained(resolved),
        claimed(as_optional_path(out, "out")) as directory,
    ):
        choose = functools.partial(choose_step, asked=step)
        found = run(resolved, choose=choose, iterations=iterations, cache=cache, watch=watch)
        if directory is not None:
            _write(found, resolved, directory, cache)
    return found


def _write(found: Measurement, workload: Any, out: Path, cache: Path | None) -> None:
    from paceline.reporting.page import report
    from paceline.reporting.record_files import context_of, write_measurement
    from paceline.training.evaluate import time_validation

    experiment = context_of(found, time_validation(workload, cache=cache))
    write_measurement(found, out, experiment)
    report([out], out / "report.html")


def measure_links(device: str = "auto") -> LinkMeasurement:
    """Measure latency and bandwidth of this machine's links: memory, and between host and GPU where there is one.

    >>> found = paceline.measure_links("cpu")
    >>> all(link.bandwidth > 0 for link in found.links)
    True
    """
    from paceline.measurement.links import measure_links as run
    from paceline.step.placement import choose_device

    check_device(device)
    return run(choose_device(device)[0])
