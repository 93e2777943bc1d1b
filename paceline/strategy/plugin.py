"""Finds the object behind a setting such as `topk:0.01`: a built-in one by name, or the user's own as module:name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from paceline import user_code
from paceline.errors import PacelineError, StrategyError, WorkloadError, nearest, reason


class BuiltIn(NamedTuple):
    """A built-in object: how it is made, from nothing or from the number after its name."""

    make: Callable[..., Any]
    takes_number: bool = False
    default: float | None = None
    """The number if none is given; None: one is needed."""


def resolve_plugin(kind: str, text: str, known: Mapping[str, BuiltIn]) -> Any:
    """`NAME`, `NAME:ARGUMENT`, or the user's own `module:name` and `module:name:ARGUMENT`.

    A class is instantiated, with the argument if there is one; a function or an instance is taken as it is.
    """
    name, colon, argument = text.partition(":")
    if name in known:
        return _make(kind, name, argument, known[name])
    if not colon:
        raise StrategyError(f"{kind} {text!r} is unknown: {nearest(name, known, or_custom=True)}")
    attribute, _, rest = argument.partition(":")
    try:
        found = user_code.find(f"{name}:{attribute}")
    except WorkloadError as error:
        raise StrategyError(f"{kind} {text!r}: {error}; built in: {nearest(name, known)}") from error
    if isinstance(found, type) or (rest and callable(found)):
        try:
            return found(rest) if rest else found()
        except PacelineError:
            raise
        except Exception as error:
            raise StrategyError(f"{kind} {text} could not be made: {reason(error)}") from error
    return found


def _make(kind: str, name: str, argument: str, built_in: BuiltIn) -> Any:
    if not built_in.takes_number:
        if argument:
            raise StrategyError(f"{kind} {name}:{argument}: {name} takes no argument")
        return built_in.make()
    default = built_in.default
    try:
        number = default if not argument and default is not None else float(argument)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        example = f"{name}:{2 if default is None else default:g}"
        raise StrategyError(f"{kind} {name + ':' + argument!r} needs a number of at least 0, for example {example}")
    return built_in.make(number)


def name_of(thing: Any) -> str:
    """The `module:name` by which another process finds a class, function or module-level object."""
    if isinstance(thing, str):
        return thing
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if module in (None, "__main__") or name is None or "<locals>" in name:
        raise StrategyError(
            f"{thing!r:.80} cannot be found by other processes: define it at the top of a module, as module:name"
        )
    return f"{module}:{name}"


def attribute(thing: Any, name: str, kind: type | tuple[type, ...], default: Any, called: str) -> Any:
    """An attribute of the user's object, checked; `default` where it has none."""
    value = getattr(thing, name, default)
    if not isinstance(value, kind):
        raise StrategyError(f"{called}: its attribute {name} should not be {value!r:.60}")
    return value
