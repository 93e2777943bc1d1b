"""Connects to a Ray cluster; each problem is a one-line error."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paceline.errors import InputError, PacelineError, reason
from paceline.step.placement import available_cores

CONNECT_WITHIN_S = 20.0


@dataclass(frozen=True)
class Shares:
    """The resources that each worker requests."""

    cpus: float
    gpus: float

    def __str__(self) -> str:
        return f"{self.cpus:g} CPU{'s' * (self.cpus != 1)}" + (f" and {self.gpus:g} GPU" if self.gpus else "")


def import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise InputError("`driver='ray'` needs Ray: pip install 'paceline[ray]'") from None


@contextmanager
def connected(address: str, cpus_wanted: float) -> Iterator[Any]:
    """Ray, connected to the cluster at `address`. If it is empty, an existing connection is used, or Ray is started
    here. Connections that existed before are kept open."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    try:
        if address:
            _check_reachable(address)
            ray.init(address=address, **quiet)
        else:
            cpus = max(available_cores(), int(-(-cpus_wanted // 1)))
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    except Exception as error:
        text = reason(error)
        if "ersion mismatch" in str(error):
            raise InputError(f"the cluster at {address} has another version of Ray or Python: {text}") from error
        where = f"the cluster at {address}" if address else "Ray on this machine"
        raise InputError(f"cannot connect to {where}: {text}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Checks that the address accepts connections; Ray itself would retry for a minute."""
    import socket

    if address in ("auto", "local") or "://" in address:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"`address={address!r}` should be HOST:PORT, e.g. 10.0.0.1:6379, or auto")
    socket.create_connection((host, int(port)), CONNECT_WITHIN_S).close()


def check_room(ray: Any, workers: int, shares: Shares) -> None:
    """Raise an error if `workers` workers do not fit on the nodes of the cluster, even with nothing else running."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    places = sum(places_on(node, shares) for node in nodes)
    if places >= workers:
        return
    cpus, gpus = (sum(node.get(kind, 0.0) for node in nodes) for kind in ("CPU", "GPU"))
    raise PacelineError(
        f"{workers} workers with {shares} each do not fit: the cluster has {cpus:g} CPUs and {gpus:g} GPUs on "
        f"{len(nodes)} node{'s' * (len(nodes) != 1)}, room for {places}; use fewer `workers` or add nodes"
    )


def places_on(node: dict[str, float], shares: Shares) -> int:
    """How many workers a node with these resources has room for."""
    found = [node.get("CPU", 0.0) // shares.cpus] if shares.cpus else []
    found += [node.get("GPU", 0.0) // shares.gpus] if shares.gpus else []
    return int(min(found)) if found else 1 << 30
