"""`python -m tests.train.local.a_training DIRECTORY [STRATEGY [SHARDS [COLLECTIVE]]]`: a training that a test ends."""

from __future__ import annotations

import sys

from paceline.errors import PacelineError
from paceline.train import local
from tests.train.local.small import workload

if __name__ == "__main__":
    try:
        local.run(
            workload(epochs=100_000), sys.argv[2] if len(sys.argv) > 2 else "downpour", out=sys.argv[1],
            checkpoint_every_s=0.3, shards=int(sys.argv[3]) if len(sys.argv) > 3 else 1,
            collective=sys.argv[4] if len(sys.argv) > 4 else "auto",
        )  # fmt: skip
    except PacelineError as error:
        print(error, flush=True)
        sys.exit(error.exit_code)
