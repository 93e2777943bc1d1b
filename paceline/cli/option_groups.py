"""Options that several commands share: the fields of a dataclass become options of a command."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any


def takes(**groups: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Lets a command take the fields of option groups as options, and hands them to it as one value a group."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = typing.get_type_hints(command, include_extras=True)
        parameters = [p for p in inspect.signature(command).parameters.values() if p.name not in groups]
        parameters = [p.replace(annotation=own[p.name]) for p in parameters]
        for group in groups.values():
            hints = typing.get_type_hints(group, include_extras=True)
            parameters += [
                inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
                for f in dataclasses.fields(group)
            ]

        @functools.wraps(command)
        def flat(**given: Any) -> Any:
            made = {name: group(**{f.name: given.pop(f.name) for f in dataclasses.fields(group)})
                    for name, group in groups.items()}  # fmt: skip
            return command(**given, **made)

        flat.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            sorted(parameters, key=lambda p: p.kind)
        )
        flat.__annotations__ = {p.name: p.annotation for p in parameters}
        del flat.__wrapped__
        return flat

    return decorate
