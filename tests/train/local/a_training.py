"""`python -m tests.train.local.a_training DIRECTORY [STRATEGY [COLLECTIVE]]`: a training that a test ends."""

from __future__ import annotations

import sys

from paceline.errors import PacelineError
from paceline.train.local import launcher
from tests.train.local.small import endless

if __name__ == "__main__":
    directory, strategy, collective = (*sys.argv[1:], *("downpour", "auto")[len(sys.argv) - 2 :])
    try:
        launcher.run(
            endless(), strategy, out=directory, checkpoint_every_s=0.3,
            collective=collective,
        )  # fmt: skip
    except PacelineError as error:
        print(error, flush=True)
        sys.exit(error.exit_code)
