"""The device memory a training step needs, estimated from shapes."""

from __future__ import annotations

from paceline.cost.op_tracing import NetworkShape
from paceline.workload import Workload

# State tensors of the parameters' size that each optimizer keeps.
OPTIMIZER_TENSORS = {
    "sgd": 0, "momentum": 1, "nesterov": 1, "adagrad": 1, "adadelta": 2, "rmsprop": 1, "adam": 2, "adamw": 2,
    "nadam": 2,
}  # fmt: skip
RUNTIME_BYTES = {True: 600 << 20, False: 250 << 20}
"""Libraries, contexts and workspaces, by whether the device is a GPU."""
ALLOCATOR_OVERHEAD = 1.15
"""Memory reserved by the allocator, relative to memory in use."""


def memory_bytes(shape: NetworkShape, workload: Workload, on_gpu: bool) -> int:
    """Parameters, gradients, optimizer state and saved activations, with allocator overhead, plus the runtime.

    An optimizer of the user's own is taken to keep as much as Adam.
    """
    parameters = shape.parameter_bytes * (2 + OPTIMIZER_TENSORS.get(workload.optimizer, 2))
    return int(ALLOCATOR_OVERHEAD * (parameters + shape.activation_bytes)) + RUNTIME_BYTES[on_gpu]
