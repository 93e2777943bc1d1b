"""What processes exchange where linear layers are divided among them by feature, found without running the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from paceline.cost.feature_share import keep_share
from paceline.cost.op_tracing import without_values
from paceline.cost.workload_tracing import DataShape, build_traced, traced_batch
from paceline.errors import NetworkError, PacelineError, reason
from paceline.step.feature_division import GATHERED, SECOND, divide_features
from paceline.unallocated import build_unallocated
from paceline.workload import Workload


@dataclass(frozen=True)
class LayerExchange:
    """What is exchanged for one linear layer, of one batch."""

    layer: str
    summed_bytes: int = 0
    """All-reduce in the forward pass: the output of the second layer of a pair."""
    gathered_bytes: int = 0
    """All-gather in the forward pass: the output of a layer that is in no pair."""
    gradient_bytes: int = 0
    """All-reduce in the backward pass: the gradient of the layer's input."""


def trace_exchanges(workload: Workload, shape: DataShape, parts: int) -> tuple[LayerExchange, ...]:
    """Of one batch of the workload, in the order of the layers; `NetworkError` if no layer can be divided."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    made = build_unallocated(lambda: build_traced(workload, shape), workload.network, mode)
    network = without_values(made, mode, torch.contiguous_format).train()
    divided = divide_features(workload.network, network, parts)
    found = {path: LayerExchange(path) for path in divided.layers}

    def counting(path: str, how: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def count(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            before, size = found[path], output.numel() * output.element_size()
            gradient = inputs[0].numel() * inputs[0].element_size() if inputs[0].requires_grad else 0
            found[path] = LayerExchange(
                path, before.summed_bytes + size * (how == SECOND), before.gathered_bytes + size * (how == GATHERED),
                before.gradient_bytes + gradient * (how != SECOND),
            )  # fmt: skip

        return count

    try:
        with mode, torch.enable_grad():
            keep_share(network, divided, parts)
            for path, how in divided.layers.items():
                network.get_submodule(path).register_forward_hook(counting(path, how))
            network(traced_batch(workload, shape)[0])
    except PacelineError:
        raise
    except Exception as error:
        raise NetworkError(f"{workload.network} cannot be traced with divided layers: {reason(error)}") from error
    return tuple(found.values())
