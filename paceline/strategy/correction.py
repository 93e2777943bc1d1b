"""Corrects a late payload before the server's optimizer gets it: a function on flat tensors and its state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from paceline.errors import Diverged, StrategyError, a_type, reason
from paceline.strategy.finite import is_finite
from paceline.strategy.plugin import BuiltIn, attribute, resolve_plugin

State = Mapping[str, Tensor]


class Late(NamedTuple):
    """A payload as a correction sees it, besides its gradient. Vectors have one entry per parameter."""

    parameters: Tensor
    """As they are now, before the update."""
    fetched: Tensor
    """As they were when the gradient was computed."""
    staleness: int
    """Updates between the worker's fetch and this update."""
    worker: int
    """The worker of the payload; the first one of a synchronous group."""
    step: int
    """The number of the worker's task."""
    rate: float
    """The learning rate of this update."""
    state: State
    """The correction's vectors for this worker or group, to be changed in place."""
    server_state: State
    """The correction's vectors that all workers share, to be changed in place."""
    prepared: Tensor | None = None
    """What the correction's `prepare` returned for this gradient."""
    room: tuple[Tensor, Tensor] | None = None
    """Memory that a correction with `prepare` may use: for something between, and for its result. The latter may be the
    gradient itself."""


Function = Callable[[Tensor, Late], Tensor]
"""(gradient, late) -> the gradient to apply."""
Prepare = Callable[[Tensor, State, State, tuple[Tensor, Tensor]], Tensor]
"""(gradient, state before, state after, memory for the result and for something between) -> what was prepared."""


@dataclass(frozen=True)
class Correction:
    function: Function
    state: tuple[str, ...] = ()
    """Names of flat vectors kept for each worker or group, zero at first."""
    server_state: tuple[str, ...] = ()
    """Names of flat vectors kept once, at the server, zero at first."""
    needs_fetched: bool = True
    """Whether it looks at the parameters that a gradient was computed on."""
    elementwise: bool = False
    """Whether it may be given piece after piece of the vectors, instead of whole ones."""
    prepare: Prepare | None = None
    """The part that needs no parameters, so that a worker can compute it before it has to keep others waiting.
    It writes the state after the update; `function` finds its result in `late.prepared`."""
    late_only: bool = False
    """Whether it does nothing for a payload that is not late."""
    passes: tuple[int, int] = (12, 3)
    """How often it goes over the parameters in the cache and in memory; for estimates of the server's time."""


def _built_in() -> dict[str, BuiltIn]:
    from paceline.strategy.corrections.delay_compensation import adaptive, constant
    from paceline.strategy.corrections.staleness_aware import staleness_aware

    return {
        "none": BuiltIn(lambda: None),
        "constant": BuiltIn(constant, takes_number=True),
        "adaptive": BuiltIn(adaptive, takes_number=True),
        "staleness": BuiltIn(staleness_aware),
    }


@functools.lru_cache(maxsize=64)
def find_correction(text: str) -> Correction | None:
    """none, constant:LAMBDA, adaptive:LAMBDA, staleness, or module:name; None when nothing is to be done."""
    found = resolve_plugin("correction", text, _built_in())
    return found if found is None or isinstance(found, Correction) else custom_correction(found, text)


def custom_correction(function: Any, called: str) -> Correction:
    """The user's `function(gradient, late)`; its attributes `state` and `server_state` name vectors it keeps."""
    called = f"correction {called}"
    if not callable(function):
        raise StrategyError(f"{called} is {a_type(function)}, not a function")

    def names(which: str) -> tuple[str, ...]:
        found = attribute(function, which, (tuple, list), (), called)
        if not all(isinstance(name, str) for name in found):
            raise StrategyError(f"{called}: its attribute {which} should be a list of names")
        return tuple(found)

    def correct(gradient: Tensor, late: Late) -> Tensor:
        try:
            made = function(gradient, late)
        except SystemExit as error:
            raise StrategyError(
                f"{called} ends the program (exit {error.code}); it should return a gradient instead"
            ) from None
        except Exception as error:
            raise StrategyError(f"{called} failed: {reason(error)}") from error
        if not isinstance(made, Tensor) or made.shape != gradient.shape or made.dtype != gradient.dtype:
            what = f"{tuple(made.shape)} of {made.dtype}" if isinstance(made, Tensor) else type(made).__name__
            raise StrategyError(
                f"{called} returned {what}; it should return a gradient like the one it got, "
                f"{tuple(gradient.shape)} of {gradient.dtype}"
            )
        if not is_finite(made):  # what it was given is finite: other payloads are refused before
            raise Diverged(
                f"{called} made a non-finite gradient from a finite one (staleness {late.staleness}): "
                "paceline.testing.contract.check_correction tests it"
            )
        return made

    return Correction(
        correct,
        names("state"),
        names("server_state"),
        needs_fetched=attribute(function, "needs_fetched", bool, True, called),
        late_only=attribute(function, "late_only", bool, False, called),
    )
