"""What each family of networks learns, against its bar, and whether workers learn the same as one process.

`--networks NAME ...` chooses some; `--keep DIR` keeps the runs there and does not repeat those that it finds.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.family_bars import LEARNED, Bench
from benchmarks.family_workers import COMPARED, SEEDS, STANDARD_ERRORS, same_with_workers
from benchmarks.options import Options
from benchmarks.table import show_table


def run(options: Options) -> dict[str, Any]:
    chosen = [name for name in LEARNED if not options.networks or name in options.networks]
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options.keep or Path(scratch), options.quick)
        learned = [result for name in chosen for bar in LEARNED[name] for result in bar(bench, name)]
        rows = [
            [each.network, each.what, f"{each.found:.4f}", f"{'>=' if each.more_is_better else '<='} {each.bar:.4f}",
             "PASS" if each.reached else "short"]
            for each in learned
        ]  # fmt: skip
        show_table(f"families on {bench.data}", ("network", "what", "found", "bar", ""), rows)
        seeds = 2 if options.quick else SEEDS
        pairs = sorted((n, s) for n, s in COMPARED if n in chosen)
        compared = [same_with_workers(*pair, seeds, bench.directory / "workers") for pair in pairs]
    show_table(
        f"the same learned with 2 local workers: final metric on digits, {seeds} seeds",
        ("network", "strategy", "one process", "2 workers", "difference in standard errors", ""),
        [_compared_row(each) for each in compared],
    )
    return {"learned": [vars(each) for each in learned], "distributed": compared}


def _compared_row(each: dict[str, Any]) -> list[str]:
    shown = [f"{mean(each[key]):.5f} ± {stdev(each[key]):.5f}" for key in ("alone", "together")]
    apart = each["standard errors"]
    return [each["network"], each["strategy"], *shown, f"{apart:.2f}", "PASS" if apart <= STANDARD_ERRORS else "apart"]
