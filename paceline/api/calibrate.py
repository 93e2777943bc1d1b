"""`paceline.calibrate`: short trials of operations, after which times of this machine can be predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.settings import as_optional_path, check_device, check_whole, split
from paceline.errors import InputError, nearest
from paceline.given_workload import given_workload

if TYPE_CHECKING:
    from paceline.cost.calibration import Calibration
    from paceline.cost.calibration_parts import CalibrationParts
    from paceline.given_workload import WorkloadLike
    from paceline.workload import Workload

CALIBRATION = "calibration.json"
PRECISIONS = ("float32", "tf32", "bfloat16")


def calibrate(
    device: str = "auto",
    *,
    workload: WorkloadLike | None = None,
    precision: str | Sequence[str] = (),
    local_workers: bool = False,
    quick: bool = False,
    seed: int = 0,
    address: str | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    minutes: float | None = None,
    refine: str | Path | None = None,
    watch: Callable[[float], None] | None = None,
    **settings: Any,
) -> Calibration:
    """Time the operations and links of this machine, for `predict`, `plan` and `simulate`.

    float32 is always calibrated, on a GPU bfloat16 too; `precision` adds "tf32", or "bfloat16" on a CPU.
    `local_workers=True` also measures what local workers cost each other. `quick` makes a seventh of the trials. `out`
    is a directory for calibration.json, or that file; by default it is kept with the data sets, where predictions for
    this machine find it. `resume` is a directory that keeps what is measured: a calibration that was interrupted, or
    that stopped after `minutes`, continues there, and one that is complete is fitted again on any machine. `refine` is
    an earlier calibration of this device: its trials are kept, a third of the usual number is added, and the rest is
    measured again. `watch` is called with the share done.

    On a CPU, `workload` and its settings (`data`, `batch`, ...) are as for `paceline.predict`. Each of its operations
    is then timed with its own shapes, one at a time, and predictions of that workload use these times. The workload
    itself is not run.

    With the `address` of a Ray cluster, only the network between its nodes is measured, as the Ray driver uses it, and
    added to a calibration that was made before.

    >>> calibration = paceline.calibrate("cpu", quick=True, out="calibration.json")
    >>> paceline.predict("lenet5", "calibration.json", data="digits").iteration_s > 0
    True
    """
    from paceline.cost.calibrating import calibrate as run
    from paceline.cost.calibration_parts import CalibrationParts
    from paceline.cost.calibrations import calibration_path
    from paceline.record import save
    from paceline.step.placement import choose_device

    place = as_optional_path(out, "out")
    if place is not None and place.suffix != ".json":
        place /= CALIBRATION
    check_device(device)
    check_whole(seed, "seed", 0)
    if address is not None:
        if workload is not None or settings:
            raise InputError("only the network of a cluster is measured at an `address`: leave out `workload`")
        return _with_network(address, place, device)
    folder = as_optional_path(resume, "resume")
    if minutes is not None and not (minutes > 0 and folder is not None):
        raise InputError(f"minutes={minutes!r} needs to be above 0, and `resume` a directory to continue in")
    parts = CalibrationParts(folder, minutes)
    precisions = _precisions(precision, device, parts)
    earlier = _earlier(refine, device, parts)
    with _given(workload, settings, parts.measured_on() or choose_device(device)[0].type) as own:
        found = run(
            device, precisions=precisions, quick=quick, seed=seed, watch=watch, parts=parts, earlier=earlier,
            workload=own,
        )  # fmt: skip
    if local_workers:
        from paceline.training.exchange_costs import measure_exchange

        found = replace(found, exchange=measure_exchange(rounds=1 if quick else 2))
    save(found, place or calibration_path(found.device_name))
    return found


@contextmanager
def _given(workload: WorkloadLike | None, settings: Mapping[str, Any], device: str) -> Iterator[Workload | None]:
    """The workload whose operations are to be timed, if there is one."""
    own, _ = split(settings, calibrate)
    if workload is None:
        if own:
            raise InputError(f"{next(iter(own))} is a setting of a workload: pass workload=, too")
        yield None
        return
    if device != "cpu":
        raise InputError("the operations of a workload are timed on a CPU only: calibrate a GPU without `workload`")
    with given_workload(workload, own) as resolved:
        if resolved.precision != "float32":
            raise InputError(f"operations are timed in float32 only, not in {resolved.precision}")
        yield resolved


def _with_network(address: str, place: Path | None, device: str) -> Calibration:
    from paceline.cost.calibrations import calibration_path, load_calibration
    from paceline.measurement.links import NODE_TO_NODE
    from paceline.record import save
    from paceline.step.placement import choose_device, device_name
    from paceline.training.drivers.ray.connection import connected
    from paceline.training.drivers.ray.node_links import measure_node_link

    path = place or calibration_path(device_name(choose_device(device)[0]))
    if not path.exists():
        raise InputError(f"there is no calibration to add a network to, {path}: calibrate this machine first")
    before = load_calibration(path)
    with connected(address, 0.0) as ray:
        found = measure_node_link(ray)
    others = tuple(link for link in before.links if link.link != NODE_TO_NODE)
    made = replace(before, links=(*others, found))
    save(made, path)
    return made


def _earlier(refine: str | Path | None, device: str, parts: CalibrationParts) -> Calibration | None:
    """The calibration to refine; it has to be of the same device."""
    from paceline.cost.calibration_parts import DevicePart
    from paceline.cost.calibrations import load_calibration
    from paceline.step.placement import choose_device, device_name

    path = as_optional_path(refine, "refine")
    if path is None:
        return None
    earlier, measured = load_calibration(path), parts.get("device", DevicePart)
    here = measured.name if measured is not None else device_name(choose_device(device)[0])
    if earlier.device_name != here:
        raise InputError(f"{path} is a calibration of {earlier.device_name}: it cannot be refined on {here}")
    return earlier


def _precisions(given: str | Sequence[str], device: str, parts: CalibrationParts) -> tuple[str, ...]:
    """float32 first, then what people train in on a GPU; what cannot be tried is said before the minutes, not after."""
    from paceline.step.placement import choose_device

    asked = [given] if isinstance(given, str) else list(given)
    for precision in asked:
        if precision not in PRECISIONS:
            raise InputError(f"precision {precision!r} cannot be calibrated: {nearest(str(precision), PRECISIONS)}")
    on_gpu = (parts.measured_on() or choose_device(device)[0].type) == "cuda"
    if "tf32" in asked and not on_gpu:
        raise InputError("precision 'tf32' needs a GPU; calibrate float32 on the CPU")
    return tuple(dict.fromkeys(("float32", *(["bfloat16"] if on_gpu else []), *asked)))
