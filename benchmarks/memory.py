"""Predicted device memory against the memory that PyTorch reserves: networks x kinds of step x optimizers, on a GPU.

Every case runs in a process of its own, because libraries choose algorithms, and so workspaces, once per process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.options import Options
from benchmarks.table import show, show_table
from paceline.cost.memory import memory_bytes
from paceline.cost.workload_tracing import data_shape_of, trace_workload
from paceline.step.build import assemble, load_data
from paceline.step.make import make_step
from paceline.step.tally import Tally
from paceline.workload import Workload

IMAGES, SMALL_IMAGES, TOKENS = "synthetic:3x224x224/1000:1024", "synthetic:3x32x32/10:8192", "tokens:256/8192:512"
STEPS = 20
AT_A_TIME = 6


@dataclass(frozen=True)
class Case:
    network: str
    data: str
    batch: int
    step: str
    optimizer: str
    precision: str = "float32"

    @property
    def workload(self) -> Workload:
        return Workload(
            self.network, self.data, batch=self.batch, optimizer=self.optimizer, precision=self.precision, lr=1e-4,
            device="cuda",
        )  # fmt: skip

    @property
    def name(self) -> str:
        return f"{self.network.rpartition(':')[2]} at {self.batch}"


CASES = (
    Case("resnet50", IMAGES, 64, "plain", "sgd"),
    Case("resnet50", IMAGES, 64, "flat", "momentum"),
    Case("resnet50", IMAGES, 64, "graph", "adam"),
    Case("resnet50", IMAGES, 128, "plain", "adam", "bfloat16"),
    Case("resnet50", IMAGES, 128, "graph", "momentum", "bfloat16"),
    Case("vgg16", IMAGES, 32, "plain", "adam"),
    Case("vgg16", IMAGES, 32, "flat", "sgd"),
    Case("vgg16", IMAGES, 32, "graph", "momentum"),
    Case("googlenet", IMAGES, 64, "plain", "momentum"),
    Case("googlenet", IMAGES, 64, "flat", "adam"),
    Case("googlenet", IMAGES, 64, "graph", "sgd"),
    Case("alexnet", IMAGES, 128, "plain", "sgd"),
    Case("alexnet", IMAGES, 128, "graph", "adam"),
    Case("resnet20", SMALL_IMAGES, 256, "plain", "momentum"),
    Case("resnet20", SMALL_IMAGES, 256, "flat", "adam"),
    Case("resnet20", SMALL_IMAGES, 256, "graph", "sgd"),
    Case("transformer", TOKENS, 32, "plain", "adam"),
    Case("transformer", TOKENS, 32, "flat", "momentum"),
    Case("transformer", TOKENS, 32, "graph", "sgd"),
    Case("transformer", TOKENS, 64, "graph", "adam", "bfloat16"),
    Case("textlstm", TOKENS, 64, "plain", "sgd"),
    Case("benchmarks.own_networks:mobile", SMALL_IMAGES, 256, "flat", "sgd"),
    Case("benchmarks.own_networks:mobile", SMALL_IMAGES, 256, "graph", "adam"),
    Case("benchmarks.own_networks:mixer", SMALL_IMAGES, 128, "plain", "adam"),
    Case("benchmarks.own_networks:mixer", SMALL_IMAGES, 128, "graph", "momentum"),
)


def reserved(case: Case) -> dict[str, Any]:
    """Bytes after assembling the workload, after making the step, and the most in `STEPS` steps."""
    workload, device = case.workload, torch.device("cuda", 0)
    parts = assemble(workload, load_data(workload), device)
    found = {"assembled": torch.cuda.max_memory_reserved()}
    step, _ = make_step(parts, case.step)
    found["made"] = torch.cuda.max_memory_reserved()
    step.begin(0)
    step.advance(min(STEPS, parts.feeder.order.batches), Tally(5))
    torch.cuda.synchronize()
    return found | {
        "most": torch.cuda.max_memory_reserved(),
        "allocated": torch.cuda.max_memory_allocated(),
        "segments": [_segment(each) for each in torch.cuda.memory_snapshot()],  # type: ignore[no-untyped-call]
    }


def _segment(found: dict[str, Any]) -> tuple[int, int, str, str]:
    """Its size, what of it is in use, its stream and its pool."""
    return found["total_size"], found["allocated_size"], str(found["stream"]), str(found.get("segment_pool_id", ""))


def predicted(case: Case) -> int:
    workload = case.workload
    data = data_shape_of(workload)
    return memory_bytes(trace_workload(workload, data, on_gpu=True), workload, data, step=case.step, on_gpu=True)


def _in_process(case: Case) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"case": asdict(case), "error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(options: Options) -> dict[str, Any]:
    if options.device.type != "cuda":
        show("memory: reserved memory is that of a GPU; there is none here")
        return {}
    cases = CASES[::6] if options.quick else CASES
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(_in_process, cases))
    rows, errors = [], []
    for case, result in zip(cases, results, strict=True):
        label = (case.name, case.precision, case.step, case.optimizer)
        if "error" in result:
            rows.append((*label, "", "", "", "", result["error"][:60]))
            continue
        error = result["predicted"] / result["most"] - 1
        errors.append(error)
        sizes = (result["allocated"], result["assembled"], result["most"], result["predicted"])
        rows.append((*label, *(f"{size / 1e9:.3f}" for size in sizes), f"{100 * error:+.1f} %"))
    columns = ("network", "precision", "step", "optimizer", "allocated", "assembled", "reserved", "predicted", "error")
    show_table("Peak memory in GB", columns, rows)
    if errors:
        show(
            f"lowest {100 * min(errors):+.1f} % (bar -5), highest {100 * max(errors):+.1f} % (bar +20), "
            f"median error {100 * median(map(abs, errors)):.1f} % (bar 10)"
        )
    return {"cases": results}


if __name__ == "__main__":
    chosen = Case(**json.loads(sys.argv[1]))
    print(json.dumps({"case": asdict(chosen), **reserved(chosen), "predicted": predicted(chosen)}))
