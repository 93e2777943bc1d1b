"""`python -m benchmarks [NAME ...]`: prints tables of ratios. A missed bar is news, not a failure."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import warnings
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.compiler import empty_compiler_cache
from benchmarks.options import Options
from benchmarks.table import show
from paceline.errors import PacelineError
from paceline.step.placement import choose_device
from paceline.training.conditions import current_conditions

NAMES = (
    "epoch",
    "auto",
    "folder",
    "large",
    "measure",
    "virtual",
    "server",
    "cluster",
    "slow_links",
    "faults",
    "predict",
    "left_out",
    "own_operations",
    "workers",
    "plan",
    "memory",
    "workspaces",
    "overhead",
    "families",
)
USUAL = NAMES[:3]  # measuring takes as long as all of these


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; none: {', '.join(USUAL)}")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    parser.add_argument("--rounds", type=int, help="default: as many as fit the time, at most 7")
    parser.add_argument(
        "--networks", nargs="+", default=[], metavar="NETWORK", help="for measure and families; default: all"
    )
    parser.add_argument("--pairs", type=int, default=20, help="for measure: blocks with and without the clock")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="for predict, families: keep what was made there")
    parser.add_argument("--load", type=Path, metavar="DIR", help="for predict, left_out: evaluate kept ones")
    parser.add_argument("--modes", nargs="+", default=[], metavar="MODE", help="for predict, such as 'plain bfloat16'")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every single measurement there")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, proves nothing")
    given = parser.parse_args()
    for name in given.names:
        if name not in NAMES:
            parser.error(f"no benchmark {name!r}: one of {', '.join(NAMES)}")
    if given.rounds is not None and given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: at least 1")
    if given.pairs < 1:
        parser.error(f"--pairs {given.pairs}: at least 1")
    try:
        device, _ = choose_device(given.device or "auto")
    except PacelineError as error:
        parser.error(str(error))
    _quieten()
    options = Options(
        device, given.rounds, given.quick, tuple(given.networks), given.pairs, given.keep, given.load,
        tuple(given.modes),
    )  # fmt: skip
    conditions = _conditions(device)
    show(" · ".join(f"{key} {value}" for key, value in conditions.items()))
    if options.quick:
        show("Quick: sizes too small and rounds too few for conclusions.")
    results = {}
    with empty_compiler_cache():
        for name in given.names or USUAL:
            start_s = perf_counter()
            results[name] = importlib.import_module(f"benchmarks.{name}").run(options)
            show(f"({name} took {perf_counter() - start_s:.0f} s)\n")
    if given.json is not None:
        whole = {"schema": 1, "conditions": conditions, "quick": options.quick, "results": results}
        given.json.write_text(json.dumps(whole, indent=1) + "\n")


def _conditions(device: torch.device) -> dict[str, Any]:
    known = asdict(current_conditions(device, "float32"))
    del known["threads"]  # each table states its own
    return known | {name: _version(name) for name in ("lightning", "accelerate")}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _quieten() -> None:
    """Peers greet, advise and warn; between the rows of a table that helps nobody."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    for name in ("lightning", "lightning.fabric", "lightning.pytorch", "accelerate"):
        logging.getLogger(name).setLevel(logging.ERROR)


if __name__ == "__main__":
    main()
