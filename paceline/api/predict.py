"""`paceline.predict`: how long an iteration and an epoch will take, on this device or another, before running it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.settings import as_optional_path, split
from paceline.errors import InputError
from paceline.given_workload import given_workload
from paceline.measurement.measurement import Measurement

if TYPE_CHECKING:
    from paceline.cluster import Device, Link
    from paceline.cost.calibration import Calibration
    from paceline.cost.prediction import Prediction
    from paceline.given_workload import WorkloadLike
    from paceline.simulation.on_cluster import ClusterOutcome
    from paceline.strategy.strategy import Strategy

PREDICTION, MEASUREMENT = "prediction.json", "measurement.json"


def predict(
    workload: WorkloadLike | Measurement,
    device: str | Path | Device | Calibration | None = None,
    *,
    step: str = "auto",
    out: str | Path | None = None,
    **settings: Any,
) -> Prediction:
    """Predict the time of an iteration, layer by layer, with a 90 % interval.

    `workload` and its settings (`data`, `batch`, `precision`, `threads`, ...) are as for `paceline.train`. A
    `Measurement`, or the file or directory of one, is extrapolated to another `device` or `batch`. `device` is a name
    of the catalogue (see `paceline.devices`), the file of a calibration, a `Device` or a `Calibration`; by default it
    is this machine, which must have been calibrated. `out` is a directory for prediction.json, or that file, for
    `paceline.verify`.

    For several workers, see `paceline.simulate` with a cluster.

    >>> predicted = paceline.predict("lenet5", "H200", data="digits", batch=256)
    >>> predicted.low_s < predicted.iteration_s < predicted.high_s
    True
    """
    from paceline.cluster import Device
    from paceline.cost.calibration import Calibration
    from paceline.cost.predicting import predict as run
    from paceline.record import save

    own, _ = split(settings, predict)
    place = as_optional_path(out, "out")
    where = str(device) if isinstance(device, Path) else device
    if where is not None and not isinstance(where, str | Device | Calibration):
        raise InputError(
            f"device={device!r:.60} should be a name in the catalogue, a calibration or its file, cpu or cuda"
        )
    measured = _measurement(workload)
    if measured is not None:
        made = _extrapolated(measured, own, where, step)
    else:
        with given_workload(workload, own) as resolved:  # type: ignore[arg-type]
            made = run(resolved, where, step=step)
    if place is not None:
        save(made, place if place.suffix == ".json" else place / PREDICTION)
    return made


def _measurement(workload: WorkloadLike | Measurement) -> Measurement | None:
    """The measurement to extrapolate from, if it is one."""
    from paceline.record import load_as

    if isinstance(workload, Measurement):
        return workload
    if not isinstance(workload, str | Path):
        return None
    path = Path(workload)
    if path.suffix != ".json" and not (path / MEASUREMENT).is_file():
        return None
    return load_as(path / MEASUREMENT if path.is_dir() else path, Measurement, InputError)


def _extrapolated(
    found: Measurement, given: Mapping[str, Any], device: str | Device | Calibration | None, step: str
) -> Prediction:
    from paceline.cost.extrapolation import extrapolate
    from paceline.workload import Workload, with_settings

    others = set(given) - {"batch"} | ({"step"} if step not in ("auto", found.step) else set())
    if others:
        raise InputError(f"a measurement can be extrapolated to another batch or device, not to another {min(others)}")
    batch = with_settings(Workload(), {"batch": given.get("batch", found.batch)}).batch
    return extrapolate([found], batch=batch, device=device)


def workers_calibration(device: str | None) -> Calibration:
    """Of the machine whose processes the workers are, where no link between them is given."""
    from paceline.cost.calibrations import load_calibration, local_calibration
    from paceline.cost.predicting import HERE

    if device is not None and Path(device).is_file():
        return load_calibration(Path(device))
    if device is None or HERE.fullmatch(device):
        return local_calibration(device or "auto")
    raise InputError(f"workers on several {device} need a `link` between them: see paceline catalogue links")


def predict_workers(
    made: Prediction, workers: int, strategy: Strategy, link: str | None, local: Calibration | None
) -> ClusterOutcome:
    """Machines with one worker each and a link between them, or processes of one `local` machine.

    `link` is a name of the catalogue, or a calibration that has the network between the nodes of a Ray cluster.
    """
    from paceline.cluster import Device, DeviceCount, Machine, find_link
    from paceline.cost.this_machine import machine_of
    from paceline.simulation.on_cluster import simulate_on

    calibrated = link is not None and Path(link).is_file()
    network = None if link is None else _calibrated_link(Path(link)) if calibrated else find_link(link)
    if local is not None:
        machine, each = machine_of(local), workers
    else:
        one = Device(made.device, "cpu" if made.threads else "gpu")
        machine, each = Machine(f"one {made.device}", (DeviceCount(one),), network=network), 1
    return simulate_on(
        made, machine, workers, strategy, network=network, workers_per_machine=each,
        driver="ray" if calibrated else "",
    )  # fmt: skip


def _calibrated_link(path: Path) -> Link:
    """The network that was measured between the nodes of a Ray cluster."""
    from paceline.cost.calibrations import load_calibration
    from paceline.cost.this_machine import node_link

    found = node_link(load_calibration(path))
    if found is None:
        raise InputError(
            f"{path} has no network between nodes: run `paceline.calibrate(address=..., out={str(path)!r})` first"
        )
    return found
