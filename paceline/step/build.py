"""Turns a workload into its parts: network, data, feeder and phases, on a device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from paceline import data, networks, user_code
from paceline.data.dataset import Arrays, Dataset
from paceline.data.fields import Fields, Inputs
from paceline.data.images import keep_decoded
from paceline.data.samples import Samples
from paceline.errors import NetworkError, WorkloadError, a_type, reason
from paceline.networks.criterion import HasCriteria, HasInputCheck
from paceline.networks.size_check import RefuseLarge
from paceline.step.calling import call_network, scores_of
from paceline.step.feeder import floats_as, make_feeder
from paceline.step.host_memory import keep_freed_memory
from paceline.step.layout import memory_format_of
from paceline.step.losses import class_dimension
from paceline.step.order import order_of
from paceline.step.phase import AUTOCAST, LossPhase, phases_of
from paceline.step.placement import available_cores, choose_threads, dtype_of, set_number_formats
from paceline.step.precision_check import check_half_precision
from paceline.step.randomness import default_generator, draws_random_numbers, mix
from paceline.step.step import Parts, has_own_code
from paceline.workload import Workload

CHECKED = 100
"""Samples whose values a network may check."""
_WEIGHTS = 0x3E16  # keeps initial weights apart from other uses of the same seed


def load_data(workload: Workload, cache: Path | None = None, progress: Callable[..., None] | None = None) -> Dataset:
    dataset = data.load(workload.data, cache=cache, progress=progress, find=user_code.find)
    if workload.decoded_cache_gb:
        dataset = keep_decoded(dataset, int(workload.decoded_cache_gb * 1e9))
    if workload.batch > len(dataset.train):
        raise WorkloadError(
            f"batch {workload.batch} is larger than the data: {workload.data} has {len(dataset.train):,} samples"
        )
    return dataset


def build_network(workload: Workload, dataset: Dataset) -> nn.Module:
    """The network on the CPU, with initial weights that follow from the seed."""
    torch.manual_seed(mix(_WEIGHTS, workload.seed))
    with RefuseLarge(workload.network):
        network = _build_network(workload, dataset)
    return network.to(dtype_of(workload))


def _build_network(workload: Workload, dataset: Dataset) -> nn.Module:
    if ":" in workload.network:
        made = user_code.call(workload.network)
        if isinstance(made, Workload):
            raise WorkloadError(f"{workload.network} returns a workload; name its network instead")
        if not isinstance(made, nn.Module):
            raise WorkloadError(f"{workload.network} returned {a_type(made)}; it should return an nn.Module")
        _check_settings_apply(workload)
        return made
    if dataset.kind == "fields":
        raise NetworkError(
            f"{workload.network} takes one tensor per sample, {dataset.name} has several: "
            "use a custom network (module:function)"
        )
    if not dataset.classes and networks.needs_labels(workload.network):
        raise NetworkError(
            f"{workload.network} needs classes as labels, but the targets of {dataset.name} are numbers: "
            "use a custom network (module:function) and `loss='squared'`"
        )
    return networks.build(
        workload.network,
        shape=dataset.shape,
        classes=len(dataset.classes),
        kind=dataset.kind,
        dropout=workload.dropout,
        activation=workload.activation,
        init=workload.init,
        **workload.options,
    )


def assemble(workload: Workload, dataset: Dataset, device: torch.device, *, worker: int = 0, workers: int = 1) -> Parts:
    """Everything a step needs, on `device`."""
    network = placed_network(workload, dataset, device)
    order = order_of(dataset.train, workload.batch, workload.seed, worker, workers)
    feeder = make_feeder(
        dataset,
        order,
        device,
        dtype_of(workload),
        training=True,
        readers=max(1, available_cores() // workers),
    )
    phases = phases_of(workload, network)
    if workload.precision == "float16" and [type(phase) for phase in phases] != [LossPhase]:
        raise WorkloadError("precision 'float16' scales the loss of a network with one loss: use bfloat16 for phases")
    return Parts(
        workload, dataset, network, phases, feeder, device, default_generator(device),
        random=has_own_code(workload) or isinstance(network, HasCriteria) or draws_random_numbers(network),
    )  # fmt: skip


def placed_network(workload: Workload, dataset: Dataset, device: torch.device) -> nn.Module:
    """The network on `device`, found to take the data, and the device set up for it."""
    set_number_formats(workload, device)
    network = build_network(workload, dataset)
    if any(map(is_lazy, network.parameters())):
        raise NetworkError(
            f"{workload.network} has lazy layers without a shape: call it on a sample once, before training"
        )
    if device.type == "cpu":
        set_threads(workload, network, dataset)
        keep_freed_memory()
    layout = memory_format_of(workload.memory_format, network, workload.precision, on_gpu=device.type == "cuda")
    network.to(device).to(memory_format=layout).train()  # type: ignore[call-overload]  # missing from its types
    _check_fit(workload, network, dataset, device)
    if workload.precision in AUTOCAST and device.type == "cpu":
        check_half_precision(workload, network, example_of(workload, dataset))
    return network


def _check_settings_apply(workload: Workload) -> None:
    """A network of the user's own is taken as it is; a setting that could not take effect is better refused."""
    given = {
        "dropout": workload.dropout is not None,
        "activation": workload.activation is not None,
        "init": workload.init != "default",
        "options": bool(workload.options),
    }
    for key, is_given in given.items():
        if is_given:
            raise WorkloadError(f"{key} is for built-in networks; set it inside {workload.network} itself")


def set_threads(workload: Workload, network: nn.Module, dataset: Dataset) -> None:
    torch.set_num_threads(choose_threads(workload.threads, network, example_of(workload, dataset), workload.batch))


def example_of(workload: Workload, dataset: Dataset, count: int = 1) -> Inputs:
    """Prepared samples: the first, or zeros where samples would have to be decoded."""
    part = dataset.train
    count = min(count, len(part))
    if isinstance(part, Samples):
        return floats_as(dtype_of(workload), dataset.prepare(*part.read(torch.arange(count)))[0])
    if isinstance(part, Arrays):
        return floats_as(dtype_of(workload), dataset.prepare(*part.rows(slice(0, count)))[0])
    return torch.zeros((count, *dataset.shape), dtype=dtype_of(workload))


def _check_fit(workload: Workload, network: nn.Module, dataset: Dataset, device: torch.device) -> None:
    """A network of the user's own may not take these samples; better said now than from inside a layer."""
    if isinstance(network, HasInputCheck) and isinstance(sample := example_of(workload, dataset, CHECKED), Tensor):
        try:
            network.check_inputs(sample)
        except NetworkError as error:
            raise NetworkError(f"{workload.network} does not take {dataset.name}: {error}") from None
    if ":" not in workload.network or workload.phases or ":" in workload.loss:
        return  # a loss of the user's own may call the network in a way of its own
    sample = example_of(workload, dataset, 2).to(device)
    network.eval()
    try:
        with torch.no_grad():
            output = call_network(network, sample)
    except Exception as error:
        shown = f"fields {', '.join(sample)}" if isinstance(sample, Fields) else f"shape {tuple(dataset.shape)}"
        raise NetworkError(
            f"{workload.network} does not take {dataset.name}'s samples of {shown}: {reason(error)}"
        ) from error
    finally:
        network.train()
    scores = scores_of(output)
    main = scores[0] if isinstance(scores, tuple) and scores else scores
    if not isinstance(main, Tensor):
        if workload.loss in ("model", "cross-entropy") and isinstance(sample, Fields):
            return  # it may compute its loss itself when it is given labels
        raise NetworkError(
            f"{workload.network} returns {a_type(main)}; a loss needs a tensor, or an object with .logits"
        )
    if main.dim() == 0 or len(main) != len(sample):
        raise NetworkError(
            f"{workload.network} turns {len(sample)} samples into an output of shape {tuple(main.shape)}; "
            "its first dimension should be that of the samples"
        )
    outputs = main.shape[class_dimension(main)] if main.dim() > 1 else 1
    if outputs < len(dataset.classes):
        shape = f" (its output has the shape {list(main.shape)})" if main.dim() > 2 else ""
        raise NetworkError(
            f"{workload.network} has {outputs} output{'s' * (outputs != 1)}{shape}, "
            f"{dataset.name} has {len(dataset.classes)} classes"
        )
