"""The user's own optimizer, with parameter groups and a scheduler where the user makes them.

`module:name` is a class of `torch.optim`, or a function that takes the named parameters as a dictionary and returns an
optimizer, or an optimizer and a learning-rate scheduler that is stepped after every update.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from paceline import user_code
from paceline.errors import InputError, PacelineError, WorkloadError, a_type
from paceline.held_objects import find_held, is_held


def make_optimizer(
    place: str, named: dict[str, nn.Parameter], lr: float, what: str, error: type[InputError] = WorkloadError
) -> tuple[Optimizer, LRScheduler | None]:
    """The optimizer at `place` for these parameters; `what` names the setting in errors."""
    found = user_code.find(place)
    made_by = found.func if isinstance(found, functools.partial) else found
    try:
        if isinstance(made_by, type) and issubclass(made_by, Optimizer):
            made: Any = found(list(named.values()), **_rate(found, lr))
        elif isinstance(found, Optimizer) or not callable(found):
            made = found
        else:
            made = found(named)
    except PacelineError:
        raise
    except Exception as problem:
        raise error(f"{what} {place} failed: {type(problem).__name__}: {problem}") from problem
    optimizer, scheduler = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(optimizer, Optimizer):
        raise error(
            f"{what} {place} is {a_type(optimizer)}, not an optimizer of torch.optim: give a class, or a "
            "function from named parameters to an optimizer"
        )
    if isinstance(scheduler, ReduceLROnPlateau):
        raise error(f"{what} {place}: ReduceLROnPlateau needs a metric, which an update does not have")
    given = [id(p) for group in optimizer.param_groups for p in group["params"]]
    if sorted(given) != sorted(id(p) for p in named.values()):
        raise error(
            f"{what} {place} does not hold every parameter of the network once: give its class, e.g. "
            "optimizer=torch.optim.AdamW, or a function from named parameters to an optimizer"
        )
    return optimizer, scheduler


def _rate(found: Any, lr: float) -> dict[str, float]:
    """The workload's rate, unless a partial function has its own."""
    return {} if isinstance(found, functools.partial) and "lr" in found.keywords else {"lr": lr}


class OwnOptimizer:
    """The user's optimizer at its rates: the workload's schedule scales every group, unless there is a scheduler."""

    def __init__(self, place: str, named: dict[str, nn.Parameter], lr: float) -> None:
        self.lr = lr
        self.optimizer, self.scheduler = make_optimizer(place, named, lr, "optimizer")
        self.scheduled = 0

    def step(self, rate: float) -> None:
        if self.scheduler is None:
            for group in self.optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
                group["lr"] = group["initial_lr"] * (rate / self.lr)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
            self.scheduled += 1

    def state(self) -> dict[str, Any]:
        return {**self.optimizer.state_dict(), "scheduled": self.scheduled}

    def load_state(self, saved: dict[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no update was made before these steps
            while self.scheduler is not None and self.scheduled < saved["scheduled"]:
                self.scheduler.step()
                self.scheduled += 1
        self.optimizer.load_state_dict({key: value for key, value in saved.items() if key != "scheduled"})


class OwnSchedule:
    """The rates that a scheduler of the user's gives a built-in optimizer, update by update."""

    def __init__(self, place: str, make: Any, lr: float, updates_per_epoch: int, epochs: int) -> None:
        self.place = place
        self.optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr, momentum=0.5)
        try:
            made = make(self.optimizer) if _takes_one(make) else make(self.optimizer, updates_per_epoch, epochs)
        except PacelineError:
            raise
        except Exception as problem:
            raise WorkloadError(f"schedule {place} failed: {type(problem).__name__}: {problem}") from problem
        if not isinstance(made, LRScheduler) or isinstance(made, ReduceLROnPlateau):
            raise WorkloadError(
                f"schedule {place} returned {a_type(made)}; it should take an optimizer and return a "
                "scheduler of torch.optim.lr_scheduler other than ReduceLROnPlateau"
            )
        self.scheduler = made
        self.rates = [self._rate()]

    def __call__(self, update: int) -> float:
        while len(self.rates) <= update:
            self.optimizer.step()
            try:
                self.scheduler.step()
            except Exception as problem:
                raise WorkloadError(
                    f"schedule {self.place} failed at update {len(self.rates)}: {type(problem).__name__}: {problem}"
                ) from problem
            self.rates.append(self._rate())
        return self.rates[update]

    def _rate(self) -> float:
        (group,) = self.optimizer.param_groups
        if group["momentum"] != 0.5:
            raise WorkloadError(
                f"schedule {self.place} changes the momentum too: set cycle_momentum=False, or give a function as "
                "optimizer that returns the optimizer and its scheduler"
            )
        return float(group["lr"])


def own_rate(place: str, lr: float, update: int, updates_per_epoch: int, epochs: int) -> float:
    """The learning rate of an update by the scheduler at `module:name`."""
    make = find_held(place) if is_held(place) else _imported(place)
    return _schedule(place, make, lr, updates_per_epoch, epochs)(update)


_imported = functools.cache(user_code.find)


@functools.lru_cache(maxsize=64)
def _schedule(place: str, make: Any, lr: float, updates_per_epoch: int, epochs: int) -> OwnSchedule:
    return OwnSchedule(place, make, lr, updates_per_epoch, epochs)


def _takes_one(make: Any) -> bool:
    """Whether it needs no more than the optimizer."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) < 3
