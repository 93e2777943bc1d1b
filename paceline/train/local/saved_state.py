"""What a checkpoint holds of a distributed run: one version of all that the server keeps, and where the epochs stand.

It is copied while the run goes on, like a worker's pull.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from paceline.errors import CheckpointError
from paceline.record import from_json, to_json
from paceline.strategy.strategy import Strategy
from paceline.train.local.memory import Memory
from paceline.train.local.pulling import read_version
from paceline.train.local.words import SLOT_WORDS, Control, Of

KIND = "local"
"""The step of a checkpoint that only this driver can go on with."""


def copy_state(
    memory: Memory, strategy: Strategy, meanwhile: Callable[[], None] | None = None
) -> tuple[int, Tensor, dict[str, Any]]:
    """The version, its parameters, and everything else that going on from it needs.

    `meanwhile` is done while others write.
    """
    copied: dict[str, Any] = {}

    def copy(version: int) -> None:
        now, done = version % 2, memory.control[Control.EPOCHS_DONE]
        as_of_version = memory.control[Control.VERSION] == version
        header = memory.headers[now].copy()
        groups = memory.sizes.groups
        current = header[groups : 2 * groups].tolist()
        copied.update(
            parameters=memory.parameters[now].clone(),
            state={name: tensor.clone() for name, tensor in memory.states[now].items()},
            corrections=[
                {name: tensor.clone() for name, tensor in kept[current[group]].items()}
                for group, kept in enumerate(memory.corrections)
            ],
            header=torch.from_numpy(header),
            marks=torch.from_numpy(memory.marks.copy()),
            epochs_done=done,
        )
        # The next version may be published meanwhile; if an epoch ended with it, marks and epochs are not of one.
        copied["whole"] = as_of_version and memory.control[Control.EPOCHS_DONE] == done

    version, _ = read_version(memory, memory.sizes.workers, copy, meanwhile)
    while not copied["whole"]:
        version, _ = read_version(memory, memory.sizes.workers, copy, meanwhile)
    del copied["whole"]
    workers = memory.sizes.workers
    copied |= {
        "totals": torch.from_numpy(memory.totals[: copied["epochs_done"]].copy()),
        "given": [memory.slots[w * SLOT_WORDS + Of.GIVEN] for w in range(workers)],
        "returned": memory.control[Control.RETURNED],
        "refusals": memory.control[Control.REFUSALS],
        "server_ns": memory.control[Control.SERVER_NS],
        "strategy": to_json(strategy),
        "workers": workers,
        "shards": memory.sizes.shards,
    }
    return version, copied.pop("parameters"), copied


def put_state(memory: Memory, version: int, parameters: Tensor, saved: dict[str, Any], place: str) -> None:
    """The reverse, into new memory: a server that looks around finds the run as it was."""
    now, control = version % 2, memory.control
    try:
        memory.parameters[now].copy_(parameters)
        if saved["state"].keys() != memory.states[now].keys():
            raise KeyError("the server's optimizer is another one")
        for name, tensor in memory.states[now].items():
            tensor.copy_(saved["state"][name])
        groups = memory.sizes.groups
        memory.headers[now] = saved["header"].numpy()
        memory.headers[now, groups : 2 * groups] = 0
        memory.headers[now, -1] = 0
        for kept, before in zip(memory.corrections, saved["corrections"], strict=True):
            for name, tensor in kept[0].items():
                tensor.copy_(before[name])
        memory.marks[:] = saved["marks"].numpy()
        done = int(saved["epochs_done"])
        memory.totals[:done] = saved["totals"].numpy()
        for worker, given in enumerate(saved["given"]):
            memory.slots[worker * SLOT_WORDS + Of.GIVEN] = given
        control[Control.EPOCHS_DONE] = control[Control.EPOCHS_TAKEN] = done
        control[Control.RETURNED], control[Control.REFUSALS] = saved["returned"], saved["refusals"]
        control[Control.SERVER_NS] = saved["server_ns"]
        control[Control.WRITING] = control[Control.VERSION] = version
    except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
        raise CheckpointError(f"{place} does not fit this run: {error}") from error


def saved_strategy(saved: dict[str, Any], place: str) -> tuple[Strategy, int]:
    """The strategy of a checkpoint and its number of workers."""
    try:
        return from_json(Strategy, saved["strategy"], "strategy"), int(saved["workers"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{place} is not of a distributed run: {error}") from error


def saved_shards(saved: dict[str, Any]) -> int:
    """How many the server of a checkpoint had; the state is the same with any number."""
    return int(saved.get("shards", 1))


def named_parameters(network: nn.Module, flat: Tensor, local: Tensor) -> dict[str, Tensor]:
    """A flat vector as the network's state dict, from where its tensors lie in `local`."""
    named = {}
    first, last = local.data_ptr(), local.data_ptr() + local.numel() * local.element_size()
    for name, tensor in network.state_dict().items():
        if first <= tensor.data_ptr() < last:
            start = (tensor.data_ptr() - first) // local.element_size()
            named[name] = flat[start : start + tensor.numel()].reshape(tensor.shape).clone()
        else:
            named[name] = tensor.detach().clone()
    return named


def flat_parameters(network: nn.Module, named: dict[str, Tensor], local: Tensor) -> Tensor:
    """The reverse."""
    flat = local.detach().cpu().clone()
    first, last = local.data_ptr(), local.data_ptr() + local.numel() * local.element_size()
    for name, tensor in network.state_dict().items():
        if first <= tensor.data_ptr() < last:
            start = (tensor.data_ptr() - first) // local.element_size()
            flat[start : start + tensor.numel()] = named[name].reshape(-1)
    return flat
