"""`paceline.train`: trains a workload, in this process or distributed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.settings import as_optional_path, as_path, check_number, split
from paceline.errors import InputError, StrategyError
from paceline.given_workload import given_workload, texts_of
from paceline.held_objects import holding
from paceline.training.driver import CHECKPOINT_EVERY_S
from paceline.training.starting import DISTRIBUTION_KEYS, Setup, resume_training
from paceline.training.watcher import Several, Silent, Watcher
from paceline.trust import trusting

if TYPE_CHECKING:
    from paceline import data
    from paceline.cost.prediction import Prediction
    from paceline.given_workload import WorkloadLike
    from paceline.planning.plan import Plan
    from paceline.reporting.tensorboard import TensorBoard
    from paceline.strategy.strategy import Strategy
    from paceline.training.measured_training import TrainingClock
    from paceline.training.run import Run


def train(
    workload: WorkloadLike | Plan,
    strategy: str | Strategy | None = None,
    workers: int | None = None,
    driver: str = "auto",
    out: str | Path | None = None,
    *,
    measure: bool | TrainingClock = False,
    step: str = "auto",
    log_placement: bool = False,
    data_dir: str | Path | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY_S,
    tensorboard: str | Path | None = None,
    prediction: Prediction | None = None,
    watcher: Watcher | None = None,
    downloads: data.Progress | None = None,
    trust: bool = False,
    **settings: Any,
) -> Run:
    """Train a network and return the record of the run.

    `workload` is a built-in name (see `paceline.models`), a TOML file, `"module:function"`, a `Workload`, a `Plan`, an
    `nn.Module` or a function that returns one. A module needs `data=`; it is trained in place and starts from the
    weights it has. Settings of the workload and of the strategy are keyword arguments: `data`, `batch`, `epochs`,
    `optimizer`, `lr`, `precision`, `exchange`, `push_every` and all others that the command line and TOML files know.

    Without a `strategy` and with one worker, training runs in this process. `workers` alone train synchronously; a
    strategy has two workers by default. `driver` is "auto", "local" (processes of this machine), "ray" (actors
    of a Ray cluster, at `address`) or "virtual" (simulated workers and time, real gradients).

    `out` is a new directory for the record, the checkpoint, the trace and a summary page; without it nothing is
    written. `measure=True` also measures every layer and writes that into `out`; pass a `TrainingClock` to read the
    measurement from it instead. `prediction` is kept beside the run for `paceline.verify`. `trust=True` runs code that
    a plan names, wherever it lies.

    >>> run = paceline.train("mlp", data="digits", epochs=3, out="runs/first")
    >>> run.status, run.test_accuracy > 0.8
    ('finished', True)
    """
    from paceline.planning.plan import Plan

    place, cache = as_optional_path(out, "out"), as_optional_path(data_dir, "data_dir")
    check_number(checkpoint_every, "checkpoint_every", least=0)
    if isinstance(workload, Plan):
        from paceline.api.planned import as_planned

        prediction = prediction or workload.prediction
        with trusting(trust, settings.values()):
            workload, strategy, workers, settings = as_planned(workload, strategy, workers, settings)
    own, distribution = split(settings, train, DISTRIBUTION_KEYS)
    setup = Setup.of(
        {"strategy": strategy, "workers": workers, **distribution, "driver": driver}, measuring=bool(measure)
    )
    clock = _clock(measure, setup, place)
    if setup.with_processes:
        from paceline.training.drivers.local.process_server import process_server

        process_server()  # it imports PyTorch while this process does
    with (
        given_workload(workload, own, changes_it=True) as resolved,
        _watched(watcher, tensorboard, place, clock, cache, prediction, new=True) as followed,
    ):
        return setup.train(
            resolved, out=place, cache=cache, progress=downloads, watcher=followed, step=step, clock=clock,
            measure=place / "measure" if measure and place is not None and setup.with_processes else None,
            log_placement=log_placement, checkpoint_every_s=checkpoint_every,
        )  # fmt: skip


def resume(
    directory: str | Path,
    workload: WorkloadLike | None = None,
    *,
    measure: bool | TrainingClock = False,
    data_dir: str | Path | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY_S,
    tensorboard: str | Path | None = None,
    watcher: Watcher | None = None,
    downloads: data.Progress | None = None,
    trust: bool = False,
    **settings: Any,
) -> Run:
    """Resume the run in `directory` from its last checkpoint, and return its record.

    It continues as it was; `epochs`, `device` and `threads` may change, and of a distributed run the settings of its
    driver such as `idle_timeout`. A `workload` that is named again must be the one that was saved. A run of an
    `nn.Module` needs that module again, and its data if these were an object. `trust=True` runs code that the run
    names, wherever it lies.

    >>> run = paceline.train("mlp", data="digits", epochs=1, out="runs/resumed")
    >>> len(paceline.resume("runs/resumed", epochs=2).epochs)
    2
    """
    place = as_path(directory, "directory")
    check_number(checkpoint_every, "checkpoint_every", least=0)
    own, distribution = split(settings, resume, DISTRIBUTION_KEYS)
    if measure and distribution:
        raise StrategyError(
            "`measure` samples real workers from the beginning of a run: it needs `driver='local'` and a new run"
        )
    clock, cache = _clock(measure, Setup(), place), as_optional_path(data_dir, "data_dir")
    with (
        trusting(trust, (workload, *own.values())),
        _changes(workload, own) as changes,
        _watched(watcher, tensorboard, place, clock, cache, new=False) as followed,
    ):
        return resume_training(
            place, distribution, changes, cache=cache, progress=downloads, watcher=followed, clock=clock,
            checkpoint_every_s=checkpoint_every,
        )  # fmt: skip


@contextmanager
def _changes(workload: WorkloadLike | None, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings that are given for a run to be resumed; a workload that is named again must be the saved one."""
    from paceline.workload import Workload, given_by

    if workload is None:
        with holding() as hold:
            yield texts_of(settings, hold)
        return
    with given_workload(workload, settings, changes_it=True) as named:
        if isinstance(workload, Workload):
            yield dict(vars(named))
        else:
            own = given_by(str(workload)) if isinstance(workload, str | Path) else {}
            given = {key: getattr(named, key, value) for key, value in settings.items()}
            yield {"network": named.network, **own, **given}


def _clock(measure: bool | TrainingClock, setup: Setup, out: Path | None) -> TrainingClock | None:
    """The clock of a training in this process; workers have their own."""
    if measure is False:
        return None
    from paceline.training.measured_training import TrainingClock

    if isinstance(measure, TrainingClock):
        if setup.strategy is not None:
            raise InputError("a TrainingClock measures training in one process: give measure=True and out= for workers")
        return measure
    if measure and out is None:
        raise InputError("measure=True saves the measurement in the run's directory: pass out=, or a TrainingClock")
    return TrainingClock() if measure and setup.strategy is None else None


class _Started(Silent):
    """A watcher that knows whether the run has begun: before that, its directory is left as it is."""

    run: Run | None = None

    def begun(self, run: Run, notes: list[str]) -> None:
        self.run = run


@contextmanager
def _watched(
    watcher: Watcher | None,
    tensorboard: str | Path | None,
    directory: Path | None,
    clock: TrainingClock | None,
    cache: Path | None,
    prediction: Prediction | None = None,
    *,
    new: bool,
) -> Iterator[Watcher]:
    """What the run reports to; at the end, also an early one, the files that are made of its record are written."""
    started = _Started()
    with ExitStack() as opened:
        watchers = [started, *([watcher] if watcher is not None else [])]
        if tensorboard is not None:
            watchers.append(opened.enter_context(_tensorboard(tensorboard, directory, new=new)))
        try:
            yield Several(*watchers)
        except BaseException:
            # What ended the run is what is reported, whatever happens to its page: Ctrl-C in an import of a plotting
            # library can surface as any kind of error.
            with suppress(Exception, KeyboardInterrupt):
                if started.run is not None and directory is not None:
                    _write(directory, clock, cache, prediction)
            raise
        if directory is not None:
            _write(directory, clock, cache, prediction)


def _tensorboard(folder: str | Path, directory: Path | None, *, new: bool) -> TensorBoard:
    """Where the run has the name of its directory."""
    from paceline.reporting.tensorboard import TensorBoard, check_unused, check_writable

    if directory is None:
        raise InputError("tensorboard= needs out=: events are kept under the name of the run's directory")
    place = as_path(folder, "tensorboard") / directory.resolve().name
    check_writable(place)
    if new:
        check_unused(place)
    return TensorBoard(place)


def _write(directory: Path, clock: TrainingClock | None, cache: Path | None, prediction: Prediction | None) -> None:
    from paceline.record import load, save
    from paceline.reporting.record_files import write_measured, write_run_files

    run: Run = load(directory)
    if prediction is not None:
        save(prediction, directory / "prediction.json")
    try:
        write_measured(run, directory, clock)
    finally:
        write_run_files(run, directory, cache)
