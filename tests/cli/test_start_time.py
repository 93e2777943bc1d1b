"""What a command imports, and when: PyTorch takes seconds."""

from __future__ import annotations

import subprocess
import sys

EARLY = """
import sys
import paceline.fork_server
def begun(self, preloaded):
    print("torch" in sys.modules)
    raise SystemExit
paceline.fork_server.ForkServer.__init__ = begun
from paceline.cli import main
main(["train", "mlp", "--data", "digits", "--workers", "2"])
"""


def test_workers_import_pytorch_beside_the_command_and_not_after_it(tmp_path):
    said = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, cwd=tmp_path)
    assert said.stdout == "False\n", said.stderr
