"""Next-character prediction: `text` is English that Python brings along, `text:PATH` any UTF-8 file."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paceline.data.cache import Progress, fingerprint
from paceline.data.dataset import Arrays, Dataset
from paceline.data.derived import Notes, derived
from paceline.data.source import Source, without_count
from paceline.errors import DataError

_DEFAULT_WINDOW = 64
_TEST_SHARE = 10
_BLOCK_BYTES = 1 << 22
_CODE_POINTS = 0x110000

Codes = npt.NDArray[Any]


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.allow("window")
    window = source.whole("window", _DEFAULT_WINDOW)
    if source.argument is None:
        text = bundled_text()
        vocabulary, _ = survey([text])
        codes = next(encode([text], vocabulary))
    else:
        codes, vocabulary = _encoded_file(source, Path(source.argument).expanduser(), cache)
    testing = len(codes) // _TEST_SHARE
    border = len(codes) - testing
    if testing <= window:
        raise DataError(
            f"data {source.text!r}: {len(codes)} characters are too few for windows of {window}; "
            "give a longer text or a smaller window"
        )
    return Dataset(
        name=without_count(source),
        kind="text",
        shape=(window,),
        classes=tuple(vocabulary),
        train=_windows(codes[:border], window),
        test=_windows(codes[border:], window),
        prepare=inputs_and_targets,
    )


def inputs_and_targets(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A stored window is one character longer than a sample: the target is the input one character later."""
    whole = x.to(torch.int64)
    return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()


def _windows(codes: Codes, window: int) -> Arrays:
    """Windows overlap by the one character that is the last target of one and the first input of the next, so
    they are rows of a strided view and the text is stored once."""
    count = (len(codes) - 1) // window
    rows = torch.from_numpy(codes).as_strided((count, window + 1), (window, 1))
    return Arrays(rows, torch.from_numpy(np.zeros(count, dtype=np.uint8)))


def bundled_text() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def survey(blocks: Iterable[str]) -> tuple[str, int]:
    """The sorted characters of a text, and its length."""
    seen = np.zeros(_CODE_POINTS, dtype=np.bool_)
    length = 0
    for block in blocks:
        points = _code_points(block)
        seen[points] = True
        length += len(points)
    return "".join(chr(point) for point in np.flatnonzero(seen)), length


def encode(blocks: Iterable[str], vocabulary: str) -> Iterator[Codes]:
    """Each character as its place in the vocabulary, in the smallest type that holds it."""
    kind = np.uint8 if len(vocabulary) <= 1 << 8 else np.int16 if len(vocabulary) <= 1 << 15 else np.int32
    table = np.zeros(_CODE_POINTS, dtype=kind)
    table[_code_points(vocabulary)] = np.arange(len(vocabulary), dtype=kind)
    for block in blocks:
        yield table[_code_points(block)]


def _code_points(text: str) -> Codes:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _encoded_file(source: Source, path: Path, cache: Path) -> tuple[Codes, str]:
    try:
        made_from = fingerprint(path)
        if not path.is_file():
            raise OSError("not a file")
    except OSError as error:
        raise DataError(f"data {source.text!r}: cannot read {path}: {error.strerror or error}") from error
    name = "text-" + hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:24]
    codes, notes = derived(cache, name, made_from, lambda target: _encode_file(path, target))
    return codes, notes["vocabulary"]


def _encode_file(path: Path, target: Path) -> Notes:
    """Two passes, because the vocabulary decides the type; neither holds more than a block."""
    vocabulary, length = survey(_decoded(path))
    if not length:
        raise DataError(f"{path} is empty; give a text with some characters")
    with target.open("wb") as out:
        for position, codes in enumerate(encode(_decoded(path), vocabulary)):
            if position == 0:
                kind = np.lib.format.dtype_to_descr(codes.dtype)
                header = {"descr": kind, "fortran_order": False, "shape": (length,)}
                np.lib.format.write_array_header_1_0(out, header)
            out.write(codes.tobytes())
    return {"vocabulary": vocabulary}


def _decoded(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield _checked(decoder, block, path, final=False)
        yield _checked(decoder, b"", path, final=True)


def _checked(decoder: codecs.IncrementalDecoder, block: bytes, path: Path, *, final: bool) -> str:
    try:
        return decoder.decode(block, final)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}); convert it first") from error
