"""The update rules as functions on flat tensors: parameters and state change in place, nothing is hidden.

They follow `torch.optim` formula by formula. Scalars that change (the rate, the count of updates) are
zero-dimensional tensors, so a compiled or captured step need not be built again for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.workload import Workload

State = dict[str, Tensor]

FUSED_ON_GPU_FROM = 1_000_000

MOMENTUM = 0.9
BETAS = (0.9, 0.999)
NADAM_DECAY = 4e-3


@dataclass(frozen=True)
class Rule:
    """How gradients become updates of one phase's parameters."""

    optimizer: str
    lr: float
    schedule: str = "constant"
    l1: float = 0.0
    l2: float = 0.0

    @staticmethod
    def of(workload: Workload) -> Rule:
        return Rule(workload.optimizer, workload.lr, workload.schedule, workload.l1, workload.l2)


_BUFFERS = {
    "sgd": (), "momentum": ("velocity",), "nesterov": ("velocity",), "adagrad": ("squares",),
    "adadelta": ("squares", "changes"), "rmsprop": ("squares",), "adam": ("mean", "squares"),
    "nadam": ("mean", "squares"),
}  # fmt: skip


def initial_state(rule: Rule, parameters: Tensor) -> State:
    state = {name: torch.zeros_like(parameters) for name in _BUFFERS[rule.optimizer]}
    if rule.optimizer in ("adam", "nadam"):
        state["updates"] = torch.zeros((), dtype=torch.float64, device=parameters.device)
    if rule.optimizer == "nadam":
        state["momentum_product"] = torch.ones((), dtype=torch.float64, device=parameters.device)
    return state


def update(rule: Rule, parameters: Tensor, gradient: Tensor, state: State, lr: Tensor) -> None:
    """One update of `parameters`; `gradient` may be overwritten."""
    if rule.l2:
        gradient.add_(parameters, alpha=rule.l2)
    if rule.l1:
        gradient.add_(parameters.sign(), alpha=rule.l1)
    _UPDATES[rule.optimizer](parameters, gradient, state, lr)


def sgd(w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    w.addcmul_(g, lr, value=-1)


def momentum(w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    velocity = torch.add(g, state["velocity"], alpha=MOMENTUM, out=state["velocity"])
    w.addcmul_(velocity, lr, value=-1)


def nesterov(w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    velocity = torch.add(g, state["velocity"], alpha=MOMENTUM, out=state["velocity"])
    w.addcmul_(g.add_(velocity, alpha=MOMENTUM), lr, value=-1)


def adagrad(w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    squares = state["squares"].addcmul_(g, g)
    w.sub_(g.div_(squares.sqrt().add_(1e-10)).mul_(lr))


def adadelta(w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    squares = state["squares"].mul_(0.9).addcmul_(g, g, value=0.1)
    change = (state["changes"] + 1e-6).sqrt_().div_((squares + 1e-6).sqrt_()).mul_(g)
    state["changes"].mul_(0.9).addcmul_(change, change, value=0.1)
    w.addcmul_(change, lr, value=-1)


def rmsprop(w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    squares = state["squares"].mul_(0.99).addcmul_(g, g, value=0.01)
    w.sub_(g.div_(squares.sqrt().add_(1e-8)).mul_(lr))


def adam(w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    count = state["updates"].add_(1.0)
    mean = state["mean"].lerp_(g, 1 - BETAS[0])
    squares = state["squares"].mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
    rate = lr / (1 - torch.pow(BETAS[0], count))
    scale = (1 - torch.pow(BETAS[1], count)).sqrt()
    w.sub_((mean / squares.sqrt().div_(scale).add_(1e-8)).mul_(rate))


def nadam(w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    count = state["updates"].add_(1.0)
    now = BETAS[0] * (1.0 - 0.5 * torch.pow(0.96, count * NADAM_DECAY))
    then = BETAS[0] * (1.0 - 0.5 * torch.pow(0.96, (count + 1.0) * NADAM_DECAY))
    product = state["momentum_product"].mul_(now)
    mean = state["mean"].lerp_(g, 1 - BETAS[0])
    squares = state["squares"].mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
    scale = (squares / (1 - torch.pow(BETAS[1], count))).sqrt_().add_(1e-8)
    w.sub_((g / scale).mul_(lr * (1.0 - now) / (1.0 - product)))
    w.sub_((mean / scale).mul_(lr * then / (1.0 - product * then)))


_UPDATES = {
    "sgd": sgd, "momentum": momentum, "nesterov": nesterov, "adagrad": adagrad,
    "adadelta": adadelta, "rmsprop": rmsprop, "adam": adam, "nadam": nadam,
}  # fmt: skip


def has_fused_kernel(rule: Rule, parameters: Tensor) -> bool:
    """Whether one kernel of PyTorch's does the whole rule, and does it well.

    On a GPU its rate is float32, too coarse for float64, and it leaves most of the device idle on few parameters.
    """
    known = rule.optimizer in ("sgd", "momentum", "nesterov") and hasattr(torch, "_fused_sgd_") and not rule.l1
    suits_gpu = parameters.dtype != torch.float64 and parameters.numel() > FUSED_ON_GPU_FROM
    return known and (suits_gpu or not parameters.is_cuda)


def fused_update(
    rule: Rule, parameters: list[Tensor], gradients: list[Tensor], velocities: list[Tensor], lr: Tensor
) -> None:
    """The same update in one kernel over lists of tensors, so that gradients need not be joined first."""
    plain = rule.optimizer == "sgd"
    torch._fused_sgd_(
        parameters, gradients, [] if plain else velocities, weight_decay=rule.l2, momentum=0.0 if plain else MOMENTUM,
        lr=lr, dampening=0.0, nesterov=rule.optimizer == "nesterov", maximize=False, is_first_step=False,
    )  # fmt: skip


def torch_optimizer(rule: Rule, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """PyTorch's own optimizer for the same rule; what the plain step runs."""
    optim, lr, l2 = torch.optim, rule.lr, rule.l2
    match rule.optimizer:
        case "sgd":
            return optim.SGD(parameters, lr=lr, weight_decay=l2)
        case "momentum":
            return optim.SGD(parameters, lr=lr, weight_decay=l2, momentum=MOMENTUM)
        case "nesterov":
            return optim.SGD(parameters, lr=lr, weight_decay=l2, momentum=MOMENTUM, nesterov=True)
        case "adagrad":
            return optim.Adagrad(parameters, lr=lr, weight_decay=l2)
        case "adadelta":
            return optim.Adadelta(parameters, lr=lr, weight_decay=l2)
        case "rmsprop":
            return optim.RMSprop(parameters, lr=lr, weight_decay=l2)
        case "adam":
            return optim.Adam(parameters, lr=lr, weight_decay=l2, betas=BETAS)
        case "nadam":
            return optim.NAdam(parameters, lr=lr, weight_decay=l2, betas=BETAS, momentum_decay=NADAM_DECAY)
    raise AssertionError(rule.optimizer)
