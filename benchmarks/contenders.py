"""Who takes part in `epoch`: three loops as their users write them, and Paceline's own steps.

All train the same network from the same initial weights with the same optimizer on the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from paceline.data.dataset import Arrays, Dataset
from paceline.step.build import assemble, build_network
from paceline.step.make import make_step
from paceline.step.optimizers import Rule, torch_optimizer
from paceline.step.tally import Tally
from paceline.workload import Workload


@dataclass(frozen=True, eq=False)
class Contender:
    name: str
    network: nn.Module
    epoch: Callable[[int], object]
    """Trains one epoch, of this number."""
    prepare_s: float
    """Setting up, compiling and capturing, before the first step."""


@dataclass(frozen=True, eq=False)
class Match:
    """What all contenders train."""

    workload: Workload
    dataset: Dataset
    device: torch.device
    x: Tensor
    y: Tensor

    @staticmethod
    def of(workload: Workload, dataset: Dataset, device: torch.device) -> Match:
        """The peers get their samples ready as numbers, prepared beforehand, in host memory."""
        assert isinstance(dataset.train, Arrays)
        x, y = dataset.prepare(dataset.train.x, dataset.train.y)
        return Match(workload, dataset, device, x.contiguous(), y.contiguous())

    def peer(self) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[tuple[Tensor, ...]]]:
        network = build_network(self.workload, self.dataset).to(self.device).train()
        optimizer = torch_optimizer(Rule.of(self.workload), list(network.parameters()))
        pinned = self.device.type == "cuda"
        samples = TensorDataset(self.x, self.y)
        return network, optimizer, DataLoader(samples, self.workload.batch, shuffle=True, pin_memory=pinned)


def own_step(match: Match, asked: str) -> Contender:
    parts = assemble(match.workload, match.dataset, match.device)
    start_s = perf_counter()
    step, choice = make_step(parts, asked)
    synchronise(match.device)
    prepare_s = perf_counter() - start_s

    def epoch(number: int) -> None:
        tally = Tally(match.workload.top)
        step.begin(number)
        step.advance(parts.updates_per_epoch, tally)
        tally.read()

    name = f"Paceline {asked}" + (f" ({choice.kind})" if asked == "auto" else "")
    return Contender(name, parts.network, epoch, prepare_s)


def plain_loop(match: Match) -> Contender:
    start_s = perf_counter()
    network, optimizer, loader = match.peer()
    device, move = match.device, match.device.type == "cuda"

    def epoch(_: int) -> None:
        for x, y in loader:
            if move:
                x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = F.cross_entropy(network(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return Contender("DataLoader loop", network, epoch, perf_counter() - start_s)


def fabric_loop(match: Match) -> Contender:
    from lightning.fabric import Fabric

    start_s = perf_counter()
    network, plain_optimizer, plain_loader = match.peer()
    fabric = Fabric(accelerator=match.device.type, devices=1)
    model, optimizer = fabric.setup(network, plain_optimizer)
    loader = fabric.setup_dataloaders(plain_loader)
    epoch = _peer_epoch(model, optimizer, loader, fabric.backward)
    return Contender("Lightning Fabric", network, epoch, perf_counter() - start_s)


def accelerate_loop(match: Match) -> Contender:
    from accelerate import Accelerator  # type: ignore[import-untyped]
    from accelerate.utils import DataLoaderConfiguration  # type: ignore[import-untyped]

    start_s = perf_counter()
    network, plain_optimizer, plain_loader = match.peer()
    feeding = DataLoaderConfiguration(non_blocking=match.device.type == "cuda")
    accelerator = Accelerator(cpu=match.device.type == "cpu", dataloader_config=feeding)
    model, optimizer, loader = accelerator.prepare(network, plain_optimizer, plain_loader)
    epoch = _peer_epoch(model, optimizer, loader, accelerator.backward)
    return Contender("Accelerate", network, epoch, perf_counter() - start_s)


def _peer_epoch(
    model: nn.Module, optimizer: Any, loader: Iterable[Any], backward: Callable[[Tensor], object]
) -> Callable[[int], None]:
    """The loop of both: only who runs backward differs."""

    def epoch(_: int) -> None:
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            backward(loss)
            optimizer.step()

    return epoch


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@torch.no_grad()
def loss_of(network: nn.Module, match: Match) -> float:
    """The loss over all training samples without dropout: what the training has come to."""
    network.eval()
    total = 0.0
    for start in range(0, len(match.y), 5000):
        x, y = match.x[start : start + 5000], match.y[start : start + 5000]
        loss = F.cross_entropy(network(x.to(match.device)), y.to(match.device), reduction="sum")
        total += float(loss)
    network.train()
    return total / len(match.y)
