"""The workload that a public function was given: a name, a file, a `Workload`, a module, or what makes a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import WorkloadError
from paceline.held_objects import Hold, copied, holding, same
from paceline.workload import Workload, from_network, resolve, with_settings

if TYPE_CHECKING:
    from torch import nn

    WorkloadLike = str | Path | Workload | nn.Module | Callable[[], nn.Module]

_PLAIN = (str, bool, int, float, type(None), list, tuple, dict)


@contextmanager
def given_workload(
    workload: WorkloadLike, settings: Mapping[str, Any], *, changes_it: bool = False
) -> Iterator[Workload]:
    """The workload with `settings` on top, valid until the end of the block.

    A module is used as it is where `changes_it`, since training is to change it; otherwise it is copied.
    """
    with holding() as hold:
        given = texts_of(settings, hold)
        if isinstance(workload, Workload):
            yield with_settings(workload, given)
        elif isinstance(workload, str | Path):
            yield resolve(str(workload), given)
        elif _is_module(workload):
            if "data" not in given:
                raise WorkloadError(f"{type(workload).__name__} needs data: pass data=, e.g. data='digits'")
            made = same(workload) if changes_it else copied(workload)
            yield from_network(hold(made, type(workload).__name__), given)
        elif callable(workload):
            yield resolve(hold(workload), given)
        else:
            raise WorkloadError(
                f"workload={workload!r:.60} should be a name (see paceline.models()), a TOML file, a Workload, "
                "an nn.Module, or a function that returns one"
            )


def texts_of(settings: Mapping[str, Any], hold: Hold) -> dict[str, Any]:
    """Settings as a workload has them: objects by the name under which they are held."""
    return {key: _as_text(key, value, hold) for key, value in settings.items()}


def _as_text(key: str, value: Any, hold: Hold) -> Any:
    if isinstance(value, Path) or (key == "device" and not isinstance(value, _PLAIN)):  # a torch.device
        return str(value)
    if key == "data":
        return value if isinstance(value, str) else hold(value, _data_word(value))
    if key == "precision" and not isinstance(value, _PLAIN):  # a torch.dtype
        return str(value).removeprefix("torch.")
    return value if isinstance(value, _PLAIN) else hold(value)


def _data_word(value: Any) -> str:
    """What data are called: a pair (train, test) and (x, y) by the type of what is first in them."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
    return type(value).__name__ if not callable(value) else ""


def _is_module(value: Any) -> bool:
    if isinstance(value, str | Path | Workload):
        return False
    from torch import nn

    return isinstance(value, nn.Module)
