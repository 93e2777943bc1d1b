"""Links of this machine, measured from a script as users write it."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import paceline

print("started")
print([link.link for link in paceline.measure_links("cpu").links])
"""


def test_a_script_without_a_main_guard_measures_links(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.count("started") == 1 and "process to process, socket" in done.stdout
