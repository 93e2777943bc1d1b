"""Breaks one line of the code at a time and expects its tests to fail: `python -m tests.mutations [--jobs N] [WORD]`.

Each mutant is a copy of the repository in a temporary directory. WORD chooses those whose promise contains it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutations.mutants import ROOT, Mutant, mutants

LIMIT_S = 900


def survives(mutant: Mutant) -> bool:
    """Whether all tests pass although the line is broken."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        ignored = shutil.ignore_patterns(".git", ".venv", "runs", "build", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
        mutant.apply(copy)
        words = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *mutant.tests]
        path = os.pathsep.join([str(copy), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            done = subprocess.run(
                [sys.executable, *words], cwd=copy, env={**os.environ, "PYTHONPATH": path}, timeout=LIMIT_S,
                capture_output=True, text=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False  # a hang is noticed, too
        if done.returncode not in (0, 1):  # 1: a test failed
            raise SystemExit(f"{mutant.promise}: pytest could not run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    chosen = [mutant for mutant in mutants() if options.word.lower() in mutant.promise.lower()]
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, alive in zip(chosen, pool.map(survives, chosen), strict=True):
            survivors += alive
            print(f"{'SURVIVED' if alive else 'killed':9} {mutant.promise}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants are killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
