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

NADAM_DECAY = 4e-3
DEFAULT_EPS = {"adagrad": 1e-10, "adadelta": 1e-6, "rmsprop": 1e-8, "adam": 1e-8, "adamw": 1e-8, "nadam": 1e-8}
DEFAULT_WEIGHT_DECAY = 0.01
"""Of adamw; both defaults are those of `torch.optim`."""


@dataclass(frozen=True)
class Rule:
    """How gradients become updates of one phase's parameters. An optimizer ignores the constants of the others."""

    optimizer: str
    lr: float
    schedule: str = "constant"
    l1: float = 0.0
    l2: float = 0.0
    momentum: float = 0.9
    """Of momentum and nesterov."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Of adam, adamw and nadam."""
    eps: float | None = None
    """None: the default of `torch.optim` for the optimizer."""
    weight_decay: float | None = None
    """Decoupled from the gradient, of adamw alone. None: the default of `torch.optim`."""
    clip_norm: float = 0.0
    """Largest norm of the gradient, before l1 and l2 are added; 0: no clipping. `update` leaves it to its caller, which
    has the whole gradient: see `clipping.clip_norm_`."""
    epochs: tuple[int, int | None] = (0, None)
    """The epochs in which the parameters are trained, from 0: the first, and the one after the last; None: to the end.
    The schedule counts from the first of them."""

    @staticmethod
    def of(workload: Workload) -> Rule:
        w = workload
        return Rule(
            w.optimizer, w.lr, w.schedule, w.l1, w.l2, momentum=w.momentum, betas=w.betas, eps=w.eps,
            weight_decay=w.weight_decay, clip_norm=w.clip_norm,
        )  # fmt: skip

    def trains_in(self, epoch: int) -> bool:
        first, end = self.epochs
        return first <= epoch and (end is None or epoch < end)

    @property
    def epsilon(self) -> float:
        return DEFAULT_EPS[self.optimizer] if self.eps is None else self.eps

    @property
    def decoupled_decay(self) -> float:
        if self.optimizer != "adamw":
            return 0.0
        return DEFAULT_WEIGHT_DECAY if self.weight_decay is None else self.weight_decay


_BUFFERS = {
    "sgd": (), "momentum": ("velocity",), "nesterov": ("velocity",), "adagrad": ("squares",),
    "adadelta": ("squares", "changes"), "rmsprop": ("squares",), "adam": ("mean", "squares"),
    "adamw": ("mean", "squares"), "nadam": ("mean", "squares"),
}  # fmt: skip


def initial_state(rule: Rule, parameters: Tensor) -> State:
    state = {name: torch.zeros_like(parameters) for name in _BUFFERS[rule.optimizer]}
    if rule.optimizer in ("adam", "adamw", "nadam"):
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
    _UPDATES[rule.optimizer](rule, parameters, gradient, state, lr)


def sgd(rule: Rule, w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    w.addcmul_(g, lr, value=-1)


def momentum(rule: Rule, w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    velocity = torch.add(g, state["velocity"], alpha=rule.momentum, out=state["velocity"])
    w.addcmul_(velocity, lr, value=-1)


def nesterov(rule: Rule, w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    velocity = torch.add(g, state["velocity"], alpha=rule.momentum, out=state["velocity"])
    w.addcmul_(g.add_(velocity, alpha=rule.momentum), lr, value=-1)


def adagrad(rule: Rule, w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    squares = state["squares"].addcmul_(g, g)
    w.sub_(g.div_(squares.sqrt().add_(rule.epsilon)).mul_(lr))


def adadelta(rule: Rule, w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    squares = state["squares"].mul_(0.9).addcmul_(g, g, value=0.1)
    change = (state["changes"] + rule.epsilon).sqrt_().div_((squares + rule.epsilon).sqrt_()).mul_(g)
    state["changes"].mul_(0.9).addcmul_(change, change, value=0.1)
    w.addcmul_(change, lr, value=-1)


def rmsprop(rule: Rule, w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    squares = state["squares"].mul_(0.99).addcmul_(g, g, value=0.01)
    w.sub_(g.div_(squares.sqrt().add_(rule.epsilon)).mul_(lr))


def adam(rule: Rule, w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    beta1, beta2 = rule.betas
    count = state["updates"].add_(1.0)
    mean = state["mean"].lerp_(g, 1 - beta1)
    squares = state["squares"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
    rate = lr / (1 - torch.pow(beta1, count))
    scale = (1 - torch.pow(beta2, count)).sqrt()
    w.sub_((mean / squares.sqrt().div_(scale).add_(rule.epsilon)).mul_(rate))


def adamw(rule: Rule, w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    w.addcmul_(w, lr, value=-rule.decoupled_decay)
    adam(rule, w, g, state, lr)


def nadam(rule: Rule, w: Tensor, g: Tensor, state: State, lr: Tensor) -> None:
    beta1, beta2 = rule.betas
    count = state["updates"].add_(1.0)
    now = beta1 * (1.0 - 0.5 * torch.pow(0.96, count * NADAM_DECAY))
    then = beta1 * (1.0 - 0.5 * torch.pow(0.96, (count + 1.0) * NADAM_DECAY))
    product = state["momentum_product"].mul_(now)
    mean = state["mean"].lerp_(g, 1 - beta1)
    squares = state["squares"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
    scale = (squares / (1 - torch.pow(beta2, count))).sqrt_().add_(rule.epsilon)
    w.sub_((g / scale).mul_(lr * (1.0 - now) / (1.0 - product)))
    w.sub_((mean / scale).mul_(lr * then / (1.0 - product * then)))


_UPDATES = {
    "sgd": sgd, "momentum": momentum, "nesterov": nesterov, "adagrad": adagrad,
    "adadelta": adadelta, "rmsprop": rmsprop, "adam": adam, "adamw": adamw, "nadam": nadam,
}  # fmt: skip


def has_fused_kernel(rule: Rule, parameters: Tensor, on_gpu: bool | None = None) -> bool:
    """Whether one kernel of PyTorch's does the whole rule, and does it well; `on_gpu`: None for where they are.

    On a GPU its rate is float32, too coarse for float64, and it leaves most of the device idle on few parameters.
    """
    known = rule.optimizer in ("sgd", "momentum", "nesterov") and hasattr(torch, "_fused_sgd_") and not rule.l1
    suits_gpu = parameters.dtype != torch.float64 and parameters.numel() > FUSED_ON_GPU_FROM
    return known and (suits_gpu or not (parameters.is_cuda if on_gpu is None else on_gpu))


def fused_update(
    rule: Rule, parameters: list[Tensor], gradients: list[Tensor], velocities: list[Tensor], lr: Tensor | float
) -> None:
    """The same update in one kernel over lists of tensors, so that gradients need not be joined first."""
    momentum = 0.0 if rule.optimizer == "sgd" else rule.momentum
    torch._fused_sgd_(
        parameters, gradients, velocities if momentum else [], weight_decay=rule.l2, momentum=momentum,
        lr=lr, dampening=0.0, nesterov=rule.optimizer == "nesterov", maximize=False, is_first_step=False,
    )  # fmt: skip


def torch_optimizer(rule: Rule, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """PyTorch's own optimizer for the same rule; what the plain step runs. Its caller adds l1 and clips."""
    optim, lr, l2 = torch.optim, rule.lr, rule.l2
    match rule.optimizer:
        case "sgd":
            return optim.SGD(parameters, lr=lr, weight_decay=l2)
        case "momentum":
            return optim.SGD(parameters, lr=lr, weight_decay=l2, momentum=rule.momentum)
        case "nesterov":
            return optim.SGD(parameters, lr=lr, weight_decay=l2, momentum=rule.momentum, nesterov=rule.momentum > 0)
        case "adagrad":
            return optim.Adagrad(parameters, lr=lr, weight_decay=l2, eps=rule.epsilon)
        case "adadelta":
            return optim.Adadelta(parameters, lr=lr, weight_decay=l2, eps=rule.epsilon)
        case "rmsprop":
            return optim.RMSprop(parameters, lr=lr, weight_decay=l2, eps=rule.epsilon)
        case "adam":
            return optim.Adam(parameters, lr=lr, weight_decay=l2, betas=rule.betas, eps=rule.epsilon)
        case "adamw":
            decay = rule.decoupled_decay
            adamw = optim.AdamW(parameters, lr=lr, weight_decay=decay, betas=rule.betas, eps=rule.epsilon)
            if l2:  # PyTorch's has no coupled one
                adamw.register_step_pre_hook(lambda *_: _add_l2(parameters, l2))
            return adamw
        case "nadam":
            return optim.NAdam(
                parameters, lr=lr, weight_decay=l2, betas=rule.betas, eps=rule.epsilon, momentum_decay=NADAM_DECAY
            )
    raise AssertionError(rule.optimizer)


@torch.no_grad()
def _add_l2(parameters: list[torch.nn.Parameter], l2: float) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = parameter.grad.add(parameter, alpha=l2)
