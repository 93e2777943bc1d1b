"""Valid files of every kind, made once: what the cases damage."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from paceline.cli import main

WORKLOAD = """network = "mlp"
data = "digits"
batch = 100
epochs = 1
lr = 0.1
optimizer = "momentum"
schedule = "cosine"
betas = [0.9, 0.99]
seed = 3

[options]
hidden = 20
"""
CLUSTER = """name = "lab"
network = "10 Gb/s Ethernet"

[[machines]]
name = "box"
count = 2
price = 1.5
devices = { "L4" = 2 }
host_device = "PCIe 4.0 x16"

[[machines]]
like = "g2-standard-8"
count = 1
"""
EXPERIMENT = """title = "two batches"
repetitions = 2
seed = 1
timeout = 60

[workload]
network = "mlp"
epochs = 1

[grid]
batch = [50, 100]
lr = [0.1, 0.2]
"""
RECORDS = {
    "run/record.json": "run", "measured/measurement.json": "measurement", "simulated/record.json": "simulation",
    "scaled/scaling.json": "scaling", "calibration.json": "calibration", "planned/plan.json": "plan",
    "distributed/record.json": "run",
}  # fmt: skip


def make_material(folder: Path) -> Path:
    folder.mkdir()
    for name, text in (("workload.toml", WORKLOAD), ("cluster.toml", CLUSTER), ("experiment.toml", EXPERIMENT)):
        (folder / name).write_text(text)
    import paceline

    bundled = Path(paceline.__file__).parent / "catalogue" / "calibrations" / "h200.json"
    shutil.copy(bundled, folder / "calibration.json")
    with contextlib.chdir(folder):
        _call("train", "mlp", "--epochs", "1", "--out", "run")
        _call("train", "mlp", "--epochs", "1", "--strategy", "downpour", "--workers", "2", "--driver", "virtual",
              "--out", "distributed")  # fmt: skip
        _call("measure", "mlp", "--iterations", "20", "--out", "measured")
        _call("simulate", "mlp", "--strategy", "sync", "--workers", "2", "--steps", "5", "--out", "simulated")
        _call("simulate", "mlp", "--strategy", "sync", "--workers", "2", "--cluster", "g2-standard-8",
              "--out", "scaled")  # fmt: skip
        _call("plan", "mlp", "--cluster", "g2-standard-8", "--out", "planned")
    for name, kind in RECORDS.items():
        assert json.loads((folder / name).read_text())["kind"] == kind
    return folder


def _call(*arguments: str) -> None:
    assert main(list(arguments)) == 0, arguments
