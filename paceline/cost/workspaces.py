"""Memory that libraries use beside the tensors: workspaces of cuBLAS and cuDNN."""

from __future__ import annotations

from paceline.cost.operation import Operation

CUBLAS_BYTES = 32 << 20
"""Of one stream, on Hopper and later GPUs; earlier ones use 8 MiB."""


def workspace_bytes(operation: Operation, is_first: bool) -> int:
    """`is_first`: the first call with these sizes, in which cuDNN tries its algorithms."""
    return 0
