"""Whether this CPU has PyTorch's half precision kernels for a network, known before training; some lack the LSTM's."""

from __future__ import annotations

import torch
from torch import nn

from paceline.data.fields import Inputs
from paceline.errors import WorkloadError
from paceline.step.calling import call_network
from paceline.step.phase import AUTOCAST
from paceline.workload import Workload

_NO_KERNEL = ("primitive", "not implemented for 'BFloat16'", "not implemented for 'Half'")


def check_half_precision(workload: Workload, network: nn.Module, sample: Inputs) -> None:
    """Runs one pass in evaluation mode, so that no buffer changes. Other errors are left to the training step."""
    was_training = network.training
    network.eval()
    try:
        with torch.autocast("cpu", AUTOCAST[workload.precision]):
            call_network(network, sample)
    except Exception as error:
        if any(words in str(error) for words in _NO_KERNEL):
            raise WorkloadError(
                f"precision {workload.precision!r}: PyTorch has no such kernel for {workload.network} on this CPU; "
                "use float32, or a GPU"
            ) from error
    finally:
        network.train(was_training)
