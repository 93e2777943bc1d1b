"""What measuring costs and how much it accounts for: the layer clock beside other ways to see where time goes."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch

from benchmarks.clocked import Clocked, with_clock
from benchmarks.layer_check import check_layers
from benchmarks.options import Options, digits_of_28
from benchmarks.other_clocks import OtherClock, other_clocks
from benchmarks.table import show, show_table
from paceline.errors import InputError
from paceline.workload import Workload, resolve

PROFILE_ROUNDS = 7
CHECKED = ("alexnet", 128)  # the network whose layers are compared one by one, on a GPU
# A study published in 2018 that timed layers one by one: so much longer did it take, and so much of an iteration
# did its layers have (38 to 54 % of the time was lost).
STUDY = ("+235 to +245 %", "0.46–0.62")


@dataclass(frozen=True)
class Case:
    network: str
    batch: int

    def workload(self, device: torch.device) -> Workload:
        small = self.network in ("mlp", "lstm")
        # A prime number of batches an epoch: else a regular sample would see the same few places of an epoch.
        source = digits_of_28(53 * self.batch) if small else f"synthetic:3x224x224/1000:{43 * self.batch}"
        # As many epochs as such a network would have here: a clock looks more rarely in a long run.
        epochs = 1_000 if small else 20
        # A small constant rate: noise is all there is to learn, and no loss may become infinite.
        settings = {"data": source, "batch": self.batch, "lr": 1e-3, "schedule": "constant", "epochs": epochs}
        return resolve(self.network, settings | {"device": device.type})


CASES = {
    "cpu": (Case("mlp", 100), Case("lstm", 100), Case("alexnet", 8), Case("googlenet", 4), Case("resnet18", 4)),
    "cuda": (
        Case("alexnet", 64), Case("alexnet", 128), Case("vgg11", 12), Case("googlenet", 32), Case("resnet50", 32),
    ),
}  # fmt: skip


def chosen_cases(options: Options) -> list[Case]:
    """The cases named with --networks, as NETWORK or NETWORK-BATCH, or all of the device."""
    cases = CASES[options.device.type]
    for name in options.networks:
        if not any(name in (case.network, f"{case.network}-{case.batch}") for case in cases):
            raise InputError(f"--networks {name}: one of {', '.join(f'{c.network}-{c.batch}' for c in cases)}")
    wanted = options.networks
    return [c for c in cases if not wanted or c.network in wanted or f"{c.network}-{c.batch}" in wanted]


def run(options: Options) -> list[dict[str, Any]]:
    threads = torch.get_num_threads()
    results = []
    for case in chosen_cases(options):
        results.append(_run_case(case, options))
        torch.set_num_threads(threads)
        gc.collect()
    return results


def _run_case(case: Case, options: Options) -> dict[str, Any]:
    workload = case.workload(options.device)
    pairs = 2 if options.quick else options.pairs
    clocked = with_clock(workload, options.device, pairs, options.quick)
    others = other_clocks(workload, options.device, 2 if options.quick else PROFILE_ROUNDS)
    m = clocked.measurement
    missed = missed_bars(clocked)
    show_table(
        f"measure: {case.network}, batch {case.batch}, {options.device.type}, {m.conditions['threads']} threads",
        ("", "overhead", "p10 to p90", "accounted", "unattributed", "sampled"),
        [
            [
                f"Paceline, {m.step} step", *_overhead(clocked.overheads), f"{m.accounted:.3f}",
                f"{_unattributed(clocked):+.1%}", f"{m.sampled}, {clocked.sampled_share:.1%}",
            ],
            *(_other_row(other) for other in others),
            ["published in 2018", STUDY[0], "", STUDY[1], "", "all"],
        ],
    )  # fmt: skip
    show(
        f"{1e3 * m.iteration_s.median_s:.3f} ms an iteration; {pairs} pairs of {clocked.block} iterations with and "
        f"without the clock, looked into {clocked.denser:.1f} times as often as a long run and the overhead divided by "
        "that; the others on the plain step, every iteration"
    )
    if clocked.untraced_s is not None:
        show(f"{1e3 * clocked.untraced_s:.3f} ms an iteration before the first trace")
    show("bars: " + ("all reached" if not missed else "; ".join(missed)))
    layers = []
    if options.device.type == "cuda" and (case.network, case.batch) == CHECKED:
        layers = check_layers(m, workload, options.device)
    return {
        "case": f"{case.network}-{case.batch}", "data": workload.data, "step": m.step,
        "threads": m.conditions["threads"], "iteration_s": m.iteration_s.median_s, "accounted": m.accounted,
        "unattributed": _unattributed(clocked), "sampled": m.sampled, "sampled_share": clocked.sampled_share,
        "iterations": m.iterations, "untraced_s": clocked.untraced_s, "block": clocked.block, "denser": clocked.denser,
        "overheads": clocked.overheads, "missed": missed, "layers": layers,
        "others": {o.name: {"overheads": o.overheads, "accounted": o.accounted, "failure": o.failure} for o in others},
    }  # fmt: skip


def missed_bars(clocked: Clocked) -> list[str]:
    """What falls short of the promises, in words."""
    m = clocked.measurement
    promises = {
        f"accounted {m.accounted:.3f}, not within 0.98–1.02": 0.98 <= m.accounted <= 1.02,
        f"unattributed {_unattributed(clocked):+.1%}, beyond 2 %": abs(_unattributed(clocked)) <= 0.02,
        f"overhead {median(clocked.overheads):+.1%}, above 2 %": median(clocked.overheads) <= 0.02,
        f"{len(clocked.overheads)} pairs, fewer than 20": len(clocked.overheads) >= 20,
        f"{m.sampled} sampled, fewer than 20": m.sampled >= 20,
    }
    return [words for words, kept in promises.items() if not kept]


def _unattributed(clocked: Clocked) -> float:
    return clocked.measurement.parts_s["unattributed"] / clocked.measurement.iteration_s.mean_s


def _overhead(overheads: list[float]) -> tuple[str, str]:
    tenths = quantiles(overheads, n=10, method="inclusive") if len(overheads) > 1 else overheads
    return f"{median(overheads):+.1%}", f"{tenths[0]:+.1%} to {tenths[-1]:+.1%}"


def _other_row(other: OtherClock) -> list[str]:
    if other.failure:
        return [other.name, "fails", "", "", "", "all"]
    return [other.name, *_overhead(other.overheads), f"{other.accounted:.3f}", "", "all"]
