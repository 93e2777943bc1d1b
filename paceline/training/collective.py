"""How a synchronous group averages its payloads: in the update, or among its members with torch.distributed."""

from __future__ import annotations

import torch

from paceline.errors import StrategyError
from paceline.strategy.group_averaging import averaging_obstacle, averaging_obstacle_on_cluster
from paceline.strategy.strategy import Strategy

UNTESTED = "groups average with nccl: not tested on a machine with several GPUs, collective shared is"


def check_collective(asked: str, strategy: Strategy, workers: int, *, record_events: bool = False) -> None:
    """Says what is wrong before anything is loaded."""
    if asked in ("auto", "shared"):
        return
    obstacle = averaging_obstacle(strategy, workers)
    if obstacle:
        raise StrategyError(f"collective {asked} is for groups that wait for all their members: {obstacle}")
    if record_events:
        raise StrategyError(
            f"collective {asked} sums payloads in an order that a replay cannot repeat: "
            "leave out `record_events`, or use `collective='shared'`"
        )
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "nccl" and gpus < 2:
        here = f"this machine has {gpus or 'no'} GPU{'s' * (gpus != 1)}"
        raise StrategyError(f"collective nccl needs a GPU for each member of a group; {here}: use `collective='auto'`")
    if not is_available(asked):
        raise StrategyError(f"collective {asked} is not part of this PyTorch: use `collective='shared'`")


def choose_collective(
    asked: str, strategy: Strategy, workers: int, devices: list[str], *, record_events: bool = False
) -> str:
    """The collective for these devices, one for each worker: shared, nccl or gloo."""
    if asked == "auto":
        possible = not (averaging_obstacle(strategy, workers) or record_events) and len(set(devices)) == workers
        on_gpus = all(device.startswith("cuda") for device in devices)
        return "nccl" if possible and on_gpus and is_available("nccl") else "shared"
    if asked == "nccl":
        for group in range(strategy.groups or workers):
            members = strategy.members_of(group, workers)
            own = {devices[worker] for worker in members if devices[worker].startswith("cuda")}
            if len(own) < len(members):
                where = ", ".join(devices[worker] for worker in members)
                raise StrategyError(
                    f"collective nccl needs a GPU for each member of a group, and the {len(members)} workers of "
                    f"group {group} are on {where}: use `collective='auto'`, or fewer workers"
                )
    return asked


def choose_on_cluster(
    asked: str, strategy: Strategy, workers: int, *, on_gpus: bool, ports: str = ""
) -> tuple[str, bool]:
    """The collective on a cluster, server, nccl or gloo, and whether it is also for where the server is sooner.

    Only gloo keeps to a range of ports.
    """
    obstacle = averaging_obstacle_on_cluster(strategy, workers)
    if asked in ("gloo", "nccl"):
        if obstacle:
            raise StrategyError(f"collective {asked} is for groups that wait for all their members: {obstacle}")
        if asked == "nccl" and not on_gpus:
            raise StrategyError("collective nccl needs a GPU for each worker: use `collective='auto'`")
        if asked == "nccl" and ports:
            raise StrategyError(f"nccl does not keep to `port_range={ports!r}`: use `collective='gloo'`")
        return asked, True
    if asked == "shared" or obstacle:
        return "server", False
    return ("nccl" if on_gpus and not ports else "gloo"), False


def is_available(backend: str) -> bool:
    from torch import distributed

    return distributed.is_available() and distributed.is_backend_available(backend)
