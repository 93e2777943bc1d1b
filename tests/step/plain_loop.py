"""A training loop as people write it, with nothing of Paceline's steps in it: what every step must agree with."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from paceline.step.step import Parts


def losses_of_plain_loop(parts: Parts, steps: int) -> list[float]:
    """Trains the parts' network for `steps` steps with `torch.optim`, on the batches the feeder gives."""
    w, network = parts.workload, parts.network
    eps = {} if w.eps is None else {"eps": w.eps}
    decay = {} if w.weight_decay is None else {"weight_decay": w.weight_decay}
    optimizers = {
        "sgd": lambda p: torch.optim.SGD(p, lr=w.lr, weight_decay=w.l2),
        "momentum": lambda p: torch.optim.SGD(p, lr=w.lr, momentum=w.momentum, weight_decay=w.l2),
        "nesterov": lambda p: torch.optim.SGD(p, lr=w.lr, momentum=w.momentum, nesterov=True, weight_decay=w.l2),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=w.lr, weight_decay=w.l2, **eps),
        "adadelta": lambda p: torch.optim.Adadelta(p, lr=w.lr, weight_decay=w.l2, **eps),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=w.lr, weight_decay=w.l2, **eps),
        "adam": lambda p: torch.optim.Adam(p, lr=w.lr, weight_decay=w.l2, betas=w.betas, **eps),
        "adamw": lambda p: torch.optim.AdamW(p, lr=w.lr, betas=w.betas, **eps, **decay),
        "nadam": lambda p: torch.optim.NAdam(p, lr=w.lr, weight_decay=w.l2, betas=w.betas, **eps),
    }
    optimizer = optimizers[w.optimizer](network.parameters())
    losses, epoch = [], 0
    network.train()
    while len(losses) < steps:
        for number, (x, y) in enumerate(parts.feeder.batches(epoch)):
            if len(losses) == steps:
                break
            parts.seed(epoch, number)
            optimizer.zero_grad()
            output = network(x)
            loss = F.cross_entropy(output.reshape(-1, output.shape[-1]), y.reshape(-1))
            loss.backward()
            if w.clip_norm:
                torch.nn.utils.clip_grad_norm_(network.parameters(), w.clip_norm)
            if w.optimizer == "adamw":
                for p in network.parameters():
                    p.grad.add_(p.detach(), alpha=w.l2)
            if w.l1:
                for p in network.parameters():
                    p.grad.add_(p.detach().sign(), alpha=w.l1)
            optimizer.step()
            losses.append(loss.item())
        epoch += 1
    return losses
