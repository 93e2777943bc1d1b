"""Finds out before training whether this CPU has PyTorch's bfloat16 kernels for a network; some lack the LSTM's."""

from __future__ import annotations

import torch
from torch import nn

from paceline.data.fields import Inputs
from paceline.errors import WorkloadError
from paceline.step.calling import call_network

_NO_KERNEL = ("primitive", "not implemented for 'BFloat16'")


def check_bfloat16(name: str, network: nn.Module, sample: Inputs) -> None:
    """Runs one pass in evaluation mode, so that no buffer changes. Other errors are left to the training step."""
    was_training = network.training
    network.eval()
    try:
        with torch.autocast("cpu", torch.bfloat16):
            call_network(network, sample)
    except Exception as error:
        if any(words in str(error) for words in _NO_KERNEL):
            raise WorkloadError(
                f"precision 'bfloat16': PyTorch has no such kernel for {name} on this CPU; use float32, or a GPU"
            ) from error
    finally:
        network.train(was_training)
