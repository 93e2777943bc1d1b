"""The learning rate of each update: a linear warm-up, then constant, falling by steps, half a cosine, or the user's."""

from __future__ import annotations

import math

from paceline.learning_rate import Schedule, parse_schedule
from paceline.step.optimizers import Rule
from paceline.step.own_optimizer import own_rate


def rate_at(rule: Rule, epoch: int, step: int, updates_per_epoch: int, epochs: int) -> float:
    """The rate of a rule at a step of an epoch in which it trains; `epochs` are those of the run."""
    first, end = rule.epochs
    update = (epoch - first) * updates_per_epoch + step
    last = epochs if end is None else min(end, epochs)
    return learning_rate(rule.lr, parse_schedule(rule.schedule), update, updates_per_epoch, last - first)


def learning_rate(base: float, schedule: Schedule, update: int, updates_per_epoch: int, epochs: int) -> float:
    """The rate of update number `update`, counted from 0 over the whole run."""
    if schedule.own:
        return own_rate(schedule.own, base, update, updates_per_epoch, epochs)
    epoch = update / updates_per_epoch
    if epoch < schedule.warm_up:
        return base * (update + 1) / (schedule.warm_up * updates_per_epoch + 1)
    if schedule.shape == "step":
        return base * schedule.factor ** math.floor(epoch / schedule.every)
    if schedule.shape == "cosine":
        left = max(epochs - schedule.warm_up, 1e-9)
        return base * 0.5 * (1.0 + math.cos(math.pi * min((epoch - schedule.warm_up) / left, 1.0)))
    return base
