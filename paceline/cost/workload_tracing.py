"""Traces a workload's network: the operations of one gradient, as its step would run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from paceline import data, networks, user_code
from paceline.cost.accumulation import accumulated
from paceline.cost.feature_share import keep_share
from paceline.cost.op_replay import TracedCalls
from paceline.cost.op_tracing import NetworkShape, trace_network
from paceline.cost.operation import Operation
from paceline.data import synthetic, tokens
from paceline.data.dataset import Arrays, Dataset
from paceline.data.fields import Fields
from paceline.data.samples import Samples
from paceline.data.source import parse
from paceline.data.well_known import WELL_KNOWN
from paceline.errors import NetworkError, PacelineError, WorkloadError, a_type
from paceline.step.feature_division import divide_features
from paceline.step.layout import memory_format_of
from paceline.step.phase import Batch, Phase, phases_of
from paceline.workload import Workload


@dataclass(frozen=True)
class DataShape:
    """What a prediction needs to know about the data; samples are read only where unavoidable."""

    kind: str
    shape: tuple[int, ...]
    classes: int
    samples: int
    target_shape: tuple[int, ...] = ()
    in_memory: bool = True
    """Whether all samples are in memory, so that a step can keep them on its device."""
    example: Batch | None = field(default=None, compare=False, repr=False)
    """A prepared sample, where one could be read: its types and shapes go before those above."""

    @staticmethod
    def of(dataset: Dataset) -> DataShape:
        text = dataset.kind == "text"
        return DataShape(
            dataset.kind, tuple(dataset.shape), len(dataset.classes), len(dataset.train),
            tuple(dataset.shape) if text else (), isinstance(dataset.train, Arrays), _example(dataset),
        )  # fmt: skip


def _example(dataset: Dataset) -> Batch | None:
    part = dataset.train
    if isinstance(part, Samples):
        return dataset.prepare(*part.read(torch.arange(1)))
    return dataset.prepare(*part.rows(slice(0, 1))) if isinstance(part, Arrays) else None


def data_shape_of(workload: Workload) -> DataShape:
    """The shape of the workload's data; well-known and synthetic data are not downloaded or generated."""
    source = parse(workload.data)
    if source.name in WELL_KNOWN and not source.argument:
        known = WELL_KNOWN[source.name]
        if (source.count or 1) <= known.samples[0]:
            return DataShape("image", known.shape, len(known.classes), source.count or known.samples[0])
    if source.name == "synthetic":
        synthetic.allow_options(source)
        shape, classes = synthetic.shape_and_classes(source)
        samples = source.count or synthetic.DEFAULT_TRAINING
        return DataShape("image" if len(shape) == 3 else "table", shape, classes, samples)
    if source.name == "tokens":
        source.allow()
        length, vocabulary = tokens.length_and_vocabulary(source)
        return DataShape("text", (length,), vocabulary, source.count or tokens.DEFAULT_TRAINING, (length,))
    return DataShape.of(data.load(workload.data, find=user_code.find))


def trace_workload(
    workload: Workload, shape: DataShape, *, on_gpu: bool = False, tensor: int = 1, calls: TracedCalls | None = None
) -> NetworkShape:
    """Traces one gradient of the workload's network at its batch size, without allocating memory.

    `on_gpu`: with the operations and types that a GPU would run. `tensor`: the share of one of this many processes.
    `calls` receives how to run each operation alone.
    """
    if workload.accumulate > 1:
        micro_batches = _micro_batches(workload, shape, on_gpu, tensor, calls)
        if len(micro_batches[0].phases) == 1:
            return accumulated(micro_batches)
    for place in (workload.network, workload.loss, workload.phases):
        if ":" in place:
            user_code.find(place)  # imported here, what its module makes is real

    def phases(network: nn.Module) -> list[Phase]:
        """Those of the last epoch, as they are measured."""
        return [phase for phase in phases_of(workload, network) if phase.rule.trains_in(workload.epochs - 1)]

    def change(network: nn.Module) -> None:
        if tensor > 1:
            keep_share(network, divide_features(workload.network, network, tensor), tensor)

    who = workload.phases or workload.network

    def layout(network: nn.Module) -> torch.memory_format:
        return memory_format_of(workload.memory_format, network, workload.precision, on_gpu=on_gpu)

    try:
        return trace_network(
            lambda: build_traced(workload, shape), lambda: traced_batch(workload, shape), phases,
            name=workload.network, on_gpu=on_gpu, layout=layout, change=change, calls=calls,
        )  # fmt: skip
    except PacelineError:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise NetworkError(
            f"{who} cannot be traced: its control flow depends on the values of its data "
            f"({error.func}); measure it instead"
        ) from error
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NetworkError(f"{who} cannot be traced: {first:.200}") from error


def build_traced(workload: Workload, shape: DataShape) -> nn.Module:
    """The network, for data of that shape; initial weights do not matter."""
    if ":" in workload.network:
        made = user_code.call(workload.network)
        if not isinstance(made, nn.Module):
            raise WorkloadError(f"{workload.network} returned {a_type(made)}, not an nn.Module")
        return made
    return networks.build(
        workload.network, shape=shape.shape, classes=shape.classes, kind=shape.kind, dropout=workload.dropout,
        activation=workload.activation, init="default", **workload.options,
    )  # fmt: skip


def traced_batch(workload: Workload, shape: DataShape) -> Batch:
    """A batch of the workload without values."""

    def room(tensor: Tensor) -> Tensor:
        dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
        return torch.empty((workload.batch, *tensor.shape[1:]), dtype=dtype)

    if shape.example is not None:
        x, y = shape.example
        return x.each(room) if isinstance(x, Fields) else room(x), room(y)
    kind = torch.int64 if shape.kind == "text" else torch.float32
    target = torch.int64 if shape.classes else torch.float32
    x = torch.empty((workload.batch, *shape.shape), dtype=kind)
    return x, torch.empty((workload.batch, *shape.target_shape), dtype=target)


def _micro_batches(
    workload: Workload, shape: DataShape, on_gpu: bool, tensor: int, calls: TracedCalls | None
) -> list[NetworkShape]:
    """Each micro-batch as it is traced; the last one may be smaller."""
    size = -(-workload.batch // workload.accumulate)
    sizes = [min(size, workload.batch - start) for start in range(0, workload.batch, size)]
    traced = {
        batch: trace_workload(
            replace(workload, batch=batch, accumulate=1), shape, on_gpu=on_gpu, tensor=tensor, calls=calls
        )
        for batch in dict.fromkeys(sizes)
    }
    return [traced[batch] for batch in sizes]


def is_chain(shape: NetworkShape, workload: Workload | None = None) -> bool:
    """Whether the flat step has a hand-written gradient: a sequence of linear layers, activations and dropout."""
    if workload is not None and (
        workload.phases
        or workload.loss != "cross-entropy"
        or workload.precision in ("bfloat16", "float16")
        or workload.accumulate > 1
    ):
        return False
    whole, *kinds = (row.kind for row in shape.rows.values())
    kinds = kinds[1:] if kinds[:1] == ["Flatten"] else kinds
    linear = kinds.count("Linear")
    biased = sum(o.family == "matmul" and o.sizes[-1] and o.direction == "forward" for o in shape.operations)
    return (
        whole == "Sequential"
        and kinds[:1] == kinds[-1:] == ["Linear"]
        and set(kinds) <= {"Linear", "Dropout", *_ACTIVATIONS}
        and not any(a in _ACTIVATIONS and b in _ACTIVATIONS for a, b in pairwise(kinds))
        and biased == linear
    )


_ACTIVATIONS = ("ReLU", "Tanh", "Sigmoid")


def chain_operations(operations: Sequence[Operation], on_gpu: bool) -> list[Operation]:
    """The operations of a chain's hand-written gradient: the loss is not computed, and on a GPU biases are separate."""
    written: list[Operation] = []
    for operation in operations:
        if operation.name in ("nll_loss_forward", "nll_loss_backward", "ones_like"):
            continue
        if on_gpu and operation.family == "matmul" and operation.sizes[-1]:
            _, m, n, *_ = operation.sizes
            written.append(replace(operation, sizes=(*operation.sizes[:-1], 0)))
            written.append(replace(operation, family="add", sizes=(m * n,)))
        elif on_gpu and operation.family == "reduce":
            _, reduced, inner = operation.sizes
            written.append(replace(operation, family="matmul", sizes=(1, inner, 1, reduced, 2, 0)))
        else:
            written.append(operation)
    return written
