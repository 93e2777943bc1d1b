"""What is done to a late payload before the server's optimizer gets it. Pure functions on flat tensors.

Delay compensation: Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation".
Staleness-aware rate: Zhang et al. 2015, "Staleness-aware async-SGD for distributed deep learning".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline import user_code
from paceline.errors import Diverged, StrategyError, nearest
from paceline.strategy.refusals import is_finite

DECAY = 0.95
EPSILON = 1e-7
KNOWN = ("none", "constant", "adaptive", "staleness")

State = Mapping[str, Tensor]
Function = Callable[[Tensor, Tensor, Tensor, int, State], Tensor]
"""(gradient, parameters, backup, staleness, state) -> the gradient to apply; what `state` holds may be overwritten, and
by a function of the user's own the gradient too. `backup` is what the gradient was computed on."""


@dataclass(frozen=True)
class Correction:
    function: Function
    state: tuple[str, ...] = ()
    """Flat tensors of each group's own that the function keeps, zero at first."""
    elementwise: bool = True
    """Whether it may be given piece after piece of the vectors; one of the user's own gets them whole."""


def constant(strength: float) -> Correction:
    """g + λ g⊙g⊙(w - w_bak)."""

    def correct(g: Tensor, w: Tensor, backup: Tensor, staleness: int, state: State) -> Tensor:
        drift = torch.sub(w, backup).mul_(g)
        return torch.addcmul(g, drift, g, value=strength)

    return Correction(correct)


def adaptive(strength: float) -> Correction:
    """The same with λ / √(mean square of the gradient), which keeps it in proportion."""

    def correct(g: Tensor, w: Tensor, backup: Tensor, staleness: int, state: State) -> Tensor:
        squares = state["squares"].mul_(DECAY).addcmul_(g, g, value=1 - DECAY)
        drift = torch.sub(w, backup).mul_(g)
        drift.mul_(torch.add(squares, EPSILON).rsqrt_())
        return torch.addcmul(g, drift, g, value=strength)

    return Correction(correct, ("squares",))


def by_staleness() -> Correction:
    """g / τ: the rate divided by the staleness."""

    def correct(g: Tensor, w: Tensor, backup: Tensor, staleness: int, state: State) -> Tensor:
        return g if staleness <= 1 else g / staleness

    return Correction(correct)


def parse_correction(text: str) -> Correction | None:
    """none, constant:LAMBDA, adaptive:LAMBDA, staleness, or module:function; None when nothing is to be done."""
    name, _, rest = text.partition(":")
    if name in ("none", "staleness"):
        if rest:
            raise StrategyError(f"correction {text!r}: {name} takes no number")
        return None if name == "none" else by_staleness()
    if name in ("constant", "adaptive"):
        strength = _strength(text, rest)
        return constant(strength) if name == "constant" else adaptive(strength)
    if not rest:
        raise StrategyError(f"correction {text!r} is unknown: {nearest(name, KNOWN)}, or module:function")
    return own(user_code.find(text), text)


def own(function: Any, called: str) -> Correction:
    """A correction of the user's own; names in its attribute `state` are flat tensors it keeps for each group."""
    if not callable(function):
        raise StrategyError(f"correction {called} is a {type(function).__name__}, not a function")
    names = getattr(function, "state", ())
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise StrategyError(f"correction {called}: its attribute state should be a list of names, not {names!r:.60}")

    def correct(g: Tensor, w: Tensor, backup: Tensor, staleness: int, state: State) -> Tensor:
        try:
            made = function(g, w, backup, staleness, state)
        except SystemExit as error:
            raise StrategyError(
                f"correction {called} ends the program (exit {error.code}); it should return a gradient instead"
            ) from None
        except Exception as error:
            raise StrategyError(f"correction {called} failed: {type(error).__name__}: {error}") from error
        if not isinstance(made, Tensor) or made.shape != g.shape or made.dtype != g.dtype:
            what = f"{tuple(made.shape)} of {made.dtype}" if isinstance(made, Tensor) else type(made).__name__
            raise StrategyError(
                f"correction {called} returned {what}; it should return a gradient like the one it got, "
                f"{tuple(g.shape)} of {g.dtype}"
            )
        if not is_finite(made):  # what it was given is: other payloads are refused before
            raise Diverged(
                f"correction {called} made a gradient that is not finite of one that was (staleness {staleness}): "
                "paceline.simulate.contract.check_correction tries it out"
            )
        return made

    return Correction(correct, tuple(names), elementwise=False)


def _strength(text: str, number: str) -> float:
    try:
        strength = float(number)
    except ValueError:
        strength = math.nan
    if not (math.isfinite(strength) and strength >= 0):
        name = text.partition(":")[0]
        raise StrategyError(f"correction {text!r}: {name}:LAMBDA needs a number of at least 0, as {name}:2")
    return strength
