"""How much of the exchange of gradients DistributedDataParallel hides behind the backward pass."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def ddp_overlap_s(model: nn.Module, otherwise: float) -> float:
    """Seconds per iteration that the exchange overlapped with computing, from DDP's own timers.

    They sample the first iterations and one in a hundred after them. `otherwise` is what a trace of the GPU showed.
    """
    wrapped = next((m for m in model.modules() if isinstance(m, DistributedDataParallel)), None)
    if wrapped is None or otherwise:
        return otherwise
    data = wrapped._get_ddp_logging_data()
    return 1e-9 * float(data.get("avg_backward_compute_comm_overlap_time", 0))
