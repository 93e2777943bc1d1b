"""What measuring adds to a run of a user's own loop: the whole run, beside other tools, in interleaved rounds."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.options import Options
from benchmarks.own_loop import NETWORKS, WAYS, train
from benchmarks.rounds import Spread, how_many, interleave, ratios
from benchmarks.table import show, show_table, verdict

BAR = 0.02
RUN_S, QUICK_RUN_S = 60.0, 3.0
TRACEML = "TraceML"


def run_whole(way: str, network: str, iterations: int, device: torch.device) -> float:
    """The seconds of one run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds"
        words = [way, network, str(iterations), device.type, str(torch.get_num_threads()), str(out)]
        script = str(Path(__file__).with_name("own_loop.py"))
        command = [sys.executable, script, *words]
        if way == TRACEML:
            begin = "from traceml_ai.launcher.cli import main; main()"
            command = [sys.executable, "-c", begin, "run", script, "--logs-dir", folder, "--args", *words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if not out.exists():
            raise RuntimeError(f"{way} wrote nothing: {done.stderr.strip()[-500:]}")
        return float(out.read_text())


def run(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    ways = [way for way in WAYS if way != TRACEML or importlib.util.find_spec("traceml_ai") is not None]
    if TRACEML not in ways:
        show("TraceML is not installed: pip install traceml-ai to compare with it.")
    for network in options.networks or NETWORKS:
        train("bare", network, 5, options.device)
        seconds = train("bare", network, 20, options.device) / 20
        run_s = QUICK_RUN_S if options.quick else RUN_S
        iterations = max(30, round(run_s / seconds))
        rounds = how_many(options.rounds, options.quick, len(ways) * run_s, 1.0)
        measures = {way: lambda w=way, n=network, i=iterations: run_whole(w, n, i, options.device) for way in ways}
        times = interleave(measures, rounds)
        rows = []
        for way in ways[1:]:
            over = Spread.of([ratio - 1 for ratio in ratios(times[way], times["bare"])])
            added = f"{100 * over.median:+.1f} % ({100 * over.least:+.1f} to {100 * over.greatest:+.1f})"
            rows.append([way, added, verdict(BAR, over.median) if way == "LayerClock" else ""])
        title = f"{network}: {iterations:,} iterations of {1e3 * seconds:.1f} ms on {options.device}, {rounds} rounds"
        show_table(title, ["", "added to the whole run", f"bar {100 * BAR:g} %"], rows)
        found[network] = times
    return found
