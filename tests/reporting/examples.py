"""Records as they could have been, for pages about them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline import record
from paceline.measurement.measurement import LayerTime, Measurement, Spread
from paceline.results.outcome import PlannedRun, RunOutcome
from paceline.simulation.links import MessageSizes
from paceline.simulation.simulation import Simulation
from paceline.simulation.timing import TimeRecord
from paceline.strategy.distribution import Distribution, FaultRecord, WorkerRecord
from paceline.strategy.ledger import LedgerSummary
from paceline.strategy.presets import find_strategy
from paceline.trace import Span, Trace
from paceline.training.run import Epoch, Run, ValidationPoint
from paceline.workload import Workload
from tests.a_run import a_run

EVIL = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>\"'&</script>\u2028{{7*7}}"


def some_points(d: Distribution, epochs: int) -> tuple[ValidationPoint, ...]:
    return tuple(
        ValidationPoint(e, d.seconds * e / epochs, 30 * e, 2.0 / e, 1.8 / e, 0.5 + 0.4 * e / epochs - 0.005 * d.workers)
        for e in range(1, epochs + 1)
    )


def a_distribution(strategy: str = "downpour", workers: int = 2, **changes: Any) -> Distribution:
    """Faster with more workers, a little less accurate, and staler."""
    seconds = 60.0 * (0.1 + 0.9 / workers)
    ledger = LedgerSummary(updates=90, applied=90, returned=1, staleness={"0": 10, str(workers - 1): 80})
    by_worker = tuple(
        WorkerRecord(w, 90 // workers, 5000 // workers, 0.5, 0.9, 0.8 * seconds, 0.05 * seconds, 0.15 * seconds)
        for w in range(workers)
    )
    made = Distribution(
        find_strategy(strategy), workers, "virtual", seconds=seconds, steps=90, updates=90, server_s=2.0, ledger=ledger,
        by_worker=by_worker, fault_count=1,
        faults=(FaultRecord(1.25, "died", 0, note="was ended by SIGKILL"),),
    )  # fmt: skip
    return replace(made, **changes)


def a_trace(workers: int = 2, steps: int = 20) -> Trace:
    spans = [Span("server", "apply", 0.5 + s, 0.6 + s) for s in range(steps)]
    for w in range(workers):
        spans += [Span(f"worker {w}", "compute", s + 0.01 * w, s + 0.9 + 0.01 * w) for s in range(steps)]
        spans += [Span(f"worker {w}", "fetch", s + 0.9 + 0.01 * w, s + 0.95 + 0.01 * w) for s in range(steps)]
    return Trace(tuple(spans))


def a_virtual_run(strategy: str = "downpour", workers: int = 2, seed: int = 0, epochs: int = 3, **changes: Any) -> Run:
    d = a_distribution(strategy, workers)
    points = some_points(d, epochs)
    made = tuple(
        Epoch(p.epoch, p.train_loss, p.test_accuracy - 0.01, 1.0, p.test_loss, p.test_accuracy, 1.0, 0.1, 9000.0)
        for p in points
    )
    workload = Workload(network="dnn", data="digits", epochs=epochs, batch=32, seed=seed)
    run = a_run(
        workload=workload, distribution=d, points=points, epochs=made, updates=90, trace=a_trace(workers),
        wall_s=0.5 + 0.01 * seed,
        test_accuracy=made[-1].test_accuracy + 0.001 * seed, test_loss=made[-1].test_loss,
    )  # fmt: skip
    return replace(run, **changes)


def a_measurement(layers: int = 6, **changes: Any) -> Measurement:
    def spread(seconds: float) -> Spread:
        return Spread(seconds, 0.9 * seconds, 1.2 * seconds, seconds)

    made = tuple(
        LayerTime(
            f"conv{i}", "Conv2d", 1, spread(1e-4 * i), spread(2e-4 * i), spread(1e-5), True, 1e8, 10_000, 500, 100, 100,
            2e9, 1e8,
        )
        for i in range(1, layers + 1)
    )  # fmt: skip
    parts = {
        "load": 1e-5, "copy": 0.0, "forward": sum(x.forward_s.median_s for x in made),
        "backward": sum(x.backward_s.median_s for x in made), "update": 1e-5 * layers, "communicate": 0.0,
        "idle": 0.0, "loop": 1e-6,
    }  # fmt: skip
    spans = [Span("cpu", "forward", i * 1e-4, (i + 1) * 1e-4, layer=f"conv{i}") for i in range(layers)]
    m = Measurement(
        "alexnet", 8, "cpu", "A Processor", "flat", 100, 5, spread(sum(parts.values())), parts, parts, 0.99, 0.004,
        0.001, 0.01, made, 1e11, 5e10, 1 << 28, conditions={"data": "digits", "threads": "2"},
        trace=Trace(tuple(spans)),
    )  # fmt: skip
    return replace(m, **changes)


def a_simulation(workers: int = 50) -> TimeRecord:
    workload = Workload(network="dnn", data="digits")
    found = a_distribution("sync", workers, ledger=LedgerSummary(updates=90, applied=90, staleness={"0": 90}))
    made = Simulation(found, a_trace(workers, 10))
    return TimeRecord.of(workload, {"compute-time": "gamma:100:0.01"}, MessageSizes(0, 0, 0), made, 0.05)


def an_outcome(label: str = "a", error: str = "", status: str = "failed") -> RunOutcome:
    """Of a run of an experiment."""
    settings = {"kind": "train", "network": "mlp"}
    run = PlannedRun(0, "0a1b2c3d4e", 1, None, settings, Workload("mlp"), 1, label)
    return RunOutcome(run, 1, status, error)


def save_run(run: Run, directory: Path) -> Path:
    record.save(run, directory / "record.json")
    return directory


def many_runs(directory: Path, strategies: list[str], workers: list[int], seeds: int, epochs: int = 3) -> Path:
    for strategy in strategies:
        for count in workers:
            for seed in range(seeds):
                run = a_virtual_run(strategy, count, seed, epochs)
                save_run(run, directory / f"{strategy}-{count}-{seed}")
    return directory


def broken_records(directory: Path) -> int:
    """Files that are no whole records, each in its own way; how many."""
    whole = json.dumps(record.dump(a_run()))
    texts = {
        "cut/record.json": whole[: len(whole) // 2],
        "empty/record.json": "",
        "other/record.json": '{"title": "no record"}',
        "newer/record.json": whole.replace(f'"schema": {record.SCHEMA}', '"schema": 999'),
        "unknown/record.json": whole.replace('"kind": "run"', '"kind": "dream"'),
        "lacking/record.json": whole.replace('"status"', '"sattus"').replace('"workload"', '"wrokload"'),
        "bytes/measurement.json": "\udcff\udcfe",
        "deep/record.json": '{"schema": 1, "kind": "run", "x": ' + "[" * 100_000,
        "stray.json": '{"schema": 1, "kind": "simulation", "workload',
        "rows/predictions.csv": "name,predicted\nx,soon\n",
    }
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    (directory / "notes.json").write_text('{"mine": true}')  # of another program: not a record, and not broken
    return len(texts)
