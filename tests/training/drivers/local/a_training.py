"""A training that a test ends: `python -m tests.training.drivers.local.a_training OUT [STRATEGY [COLLECTIVE]]`."""

from __future__ import annotations

import sys

from paceline.errors import PacelineError
from paceline.training import training_run
from paceline.training.drivers.local import launcher
from tests.training.drivers.local.small import endless

if __name__ == "__main__":
    training_run.CHECKPOINT_SHARE = 1.0  # tests wait for checkpoints, however long one takes on a busy machine
    directory, strategy, collective = (*sys.argv[1:], *("downpour", "auto")[len(sys.argv) - 2 :])
    try:
        launcher.run(
            endless(), strategy, out=directory, checkpoint_every_s=0.3,
            collective=collective,
        )  # fmt: skip
    except PacelineError as error:
        print(error, flush=True)
        sys.exit(error.exit_code)
