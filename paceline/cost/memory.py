"""The memory a training step needs on its device, read from shapes."""

from __future__ import annotations

from paceline.cost.reading import NetworkShape
from paceline.workload import Workload

# Tensors of the parameters' size that an optimizer keeps.
KEPT = {
    "sgd": 0, "momentum": 1, "nesterov": 1, "adagrad": 1, "adadelta": 2, "rmsprop": 1, "adam": 2, "adamw": 2,
    "nadam": 2,
}  # fmt: skip
RUNTIME_BYTES = {True: 600 << 20, False: 250 << 20}
"""On a GPU, on a CPU: libraries, contexts, their workspaces."""
FRAGMENTS = 1.15
"""What an allocator holds over what is in use."""


def memory_bytes(shape: NetworkShape, workload: Workload, on_gpu: bool) -> int:
    """Parameters and gradients, what the optimizer keeps, activations for the backward pass, and room around them."""
    parameters = shape.parameter_bytes * (2 + KEPT[workload.optimizer])
    return int(FRAGMENTS * (parameters + shape.activation_bytes)) + RUNTIME_BYTES[on_gpu]
