"""Objects that a user gives in Python, by name: in a workload a module, a data set or a loss is `object:NAME`.

A workload is text, so that a file can hold it. What has no name of its own gets one here, for as long as the call that
was given it takes. Functions and classes of a module that others can import keep their own name, `module:name`.
"""

from __future__ import annotations

import copy
import functools
import io
import mmap
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.errors import InputError, WorkloadError

PREFIX = "object:"
LARGE_BYTES = 1 << 16
"""Arrays from this size on are shared between processes."""

Hold = Callable[..., str]

_held: dict[str, Any] = {}


@contextmanager
def holding() -> Iterator[Hold]:
    """Gives a function from an object, and a word for it, to the text that stands for it until the end of the block."""
    names: list[str] = []

    def hold(value: Any, word: str = "") -> str:
        importable = importable_name(value)
        if importable is not None:
            return importable
        name = _free_name(word or _callable_name(value) or type(value).__name__)
        _held[name] = value
        names.append(name)
        return name

    try:
        yield hold
    finally:
        for name in names:
            _held.pop(name, None)


def _free_name(word: str) -> str:
    name, number = f"{PREFIX}{word}", 2
    while name in _held:
        name, number = f"{PREFIX}{word}-{number}", number + 1
    return name


def _callable_name(value: Any) -> str:
    """The name of a function or class, without characters that only Python's own names have; else nothing."""
    name = getattr(value, "__name__", "")
    return name.strip("<>") if isinstance(name, str) else ""


def importable_name(value: Any) -> str | None:
    """`module:name` of a function or class that another process can import."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "<" in name:
        return None
    return f"{module}:{name}"


def is_held(place: str) -> bool:
    return place.startswith(PREFIX)


def shown_name(place: str) -> str:
    """A name as users know it: that of an object is its type."""
    return place.removeprefix(PREFIX)


def find_held(place: str) -> Any:
    if place not in _held:
        raise WorkloadError(
            f"{shown_name(place)} was passed as a Python object, which is not stored: pass it again from Python, "
            "a network as model= (the second argument of resume), data as data="
        )
    return _held[place]


def dump_held(places: Mapping[str, str], keep: Callable[[memoryview], None]) -> dict[str, bytes]:
    """The objects among `places`, texts by the setting that they are of; large arrays and tensors go to `keep`."""

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        content = buffer.raw()
        if content.nbytes < LARGE_BYTES:
            return True
        keep(content)
        return False

    saved = {}
    for setting, place in places.items():
        if is_held(place):
            try:
                saved[place] = _dumped(find_held(place), keep_inside)
            except Exception as error:
                raise InputError(
                    f"{setting} {shown_name(place)} cannot be sent to other processes "
                    f"({type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}): "
                    "give it as module:function, or train in one process"
                ) from error
    return saved


def hold_dumped(saved: Mapping[str, bytes], arrays: Iterator[Any]) -> None:
    """Holds for the rest of this process what `dump_held` returned, with what it kept, in the same order."""
    for place, content in saved.items():
        _held[place] = pickle.loads(content, buffers=arrays)


def save_held(path: Path, places: Mapping[str, str]) -> None:
    """The objects among `places`, texts by the setting that they are of, for `load_held` in other processes.

    Large arrays and tensors go into a file of their own, which those processes map: they share one copy.
    """
    sizes = []
    with _arrays_beside(path).open("wb") as arrays:

        def keep(content: memoryview) -> None:
            arrays.write(content)
            arrays.write(bytes(-content.nbytes % mmap.PAGESIZE))
            sizes.append(content.nbytes)

        saved = dump_held(places, keep)
    path.write_bytes(pickle.dumps((saved, sizes)))


def load_held(path: Path) -> None:
    """Holds for the rest of this process what `save_held` wrote."""
    saved, sizes = pickle.loads(path.read_bytes())
    hold_dumped(saved, iter(_mapped(_arrays_beside(path), sizes)))


def _dumped(value: Any, keep_inside: Callable[[pickle.PickleBuffer], bool]) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]
    import torch

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            """Tensors as arrays, which pickle apart from the rest."""
            plain = type(value) is torch.Tensor and value.is_contiguous() and not value.requires_grad
            if plain and value.device.type == "cpu" and value.nbytes >= LARGE_BYTES and value.dtype != torch.bfloat16:
                return torch.from_numpy, (value.numpy(),)
            return super().reducer_override(value)

    file = io.BytesIO()
    Pickler(file, protocol=5, buffer_callback=keep_inside).dump(value)
    return file.getvalue()


def _mapped(file: Path, sizes: list[int]) -> Iterator[memoryview]:
    """Each array where it lies in the file; a process that writes to one gets the pages it writes to for itself."""
    if not sizes:
        return
    with file.open("rb") as opened:
        content = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY))
    start = 0
    for size in sizes:
        yield content[start : start + size]
        start += size + -size % mmap.PAGESIZE


def _arrays_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.arrays")


def same(module: Any) -> Callable[[], Any]:
    """A function that returns this very module, as `module:function` would make one: training changes it."""
    return functools.partial(_itself, module)


def copied(module: Any) -> Callable[[], Any]:
    """A function that returns copies of a module, which is left as it is."""
    return functools.partial(copy.deepcopy, module)


def _itself(module: Any) -> Any:
    return module
