"""A checkpoint: one file, written atomically, loaded without executing code.

It is what `torch.save` writes: a table whose `parameters` are the network's state dict, so that
`network.load_state_dict(torch.load("checkpoint.pt")["parameters"])` works in plain PyTorch.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.errors import CheckpointError, OutputError
from paceline.workload import Workload

SCHEMA = 2
NAME = "checkpoint.pt"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    workload: Workload
    step_kind: str
    epoch: int
    next_step: int
    updates: int
    samples: tuple[int, int]
    """Numbers of training and test samples; data that have grown or shrunk would be visited in another order."""
    parameters: dict[str, Tensor]
    optimizer: dict[str, Any]
    score: dict[str, Any]
    """Loss and accuracy of the unfinished epoch so far."""
    record: str
    """The run record up to here, as JSON."""

    @property
    def made_in(self) -> str:
        """The directory in which the run began; empty if it is not known."""
        try:
            return str(json.loads(self.record)["conditions"].get("made_in", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            return ""


class _File(io.RawIOBase):
    """Passes writes on and remembers the first failure, which `torch.save` would report as something else."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        try:
            while done < len(view):
                done += os.write(self.descriptor, view[done:])
        except OSError as error:
            self.error = self.error or error
            raise
        return done


def save_checkpoint(checkpoint: Checkpoint, directory: Path) -> None:
    """Replaces the checkpoint in `directory` in one move; what was there stays if this fails."""
    path = directory / NAME
    temporary = directory / f".{NAME}.{os.getpid()}.tmp"
    content = {"schema": SCHEMA, **vars(checkpoint), "workload": asdict(checkpoint.workload)}
    file: _File | None = None
    try:
        for left in directory.glob(f".{NAME}.*.tmp"):
            left.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            file = _File(descriptor)
            with io.BufferedWriter(file, 1 << 20) as buffered:
                torch.save(content, buffered)
                buffered.flush()
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        cause = error if isinstance(error, OSError) else (file.error if file else None)
        if cause is None:
            raise
        full = " (the disk is full)" if cause.errno == errno.ENOSPC else ""
        raise OutputError(f"cannot write {path}: {cause.strerror}{full}") from error


def load_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at `path`, a file or a directory with one."""
    if path.is_dir():
        path = path / NAME
    if not path.exists():
        raise CheckpointError(f"no checkpoint at {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged:
            raise CheckpointError(f"{path} is damaged at {damaged}")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except Exception as error:
        raise CheckpointError(
            f"{path} is not a whole checkpoint ({type(error).__name__}); it may have been cut short, or be unsafe"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise CheckpointError(f"{path} is not a checkpoint of Paceline")
    if content["schema"] > SCHEMA:
        raise CheckpointError(f"{path} has schema {content['schema']}, this version reads up to {SCHEMA}")
    if content["schema"] < SCHEMA:
        raise CheckpointError(
            f"{path} has schema {content['schema']}, of Paceline 0.1, which this version does not resume; "
            "its parameters load in plain PyTorch"
        )
    del content["schema"]
    try:
        checkpoint = Checkpoint(**{**content, "workload": Workload(**content["workload"])})
        kinds = {"epoch": int, "next_step": int, "updates": int, "samples": tuple, "record": str, "step_kind": str}
        for name, kind in kinds.items():
            if not isinstance(content[name], kind):
                raise TypeError(f"{name} is {content[name]!r:.40}")
        if not all(isinstance(t, Tensor) for t in checkpoint.parameters.values()):
            raise TypeError("parameters are not tensors")
        if not isinstance(checkpoint.optimizer, dict) or not isinstance(checkpoint.score, dict):
            raise TypeError("optimizer and score are not tables")
        return checkpoint
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a checkpoint this version can read: {error}") from error


def load_parameters(network: nn.Module, checkpoint: Checkpoint, path: Path) -> None:
    """Copies the checkpoint's parameters into the network, or says how the two differ."""
    own = network.state_dict()
    saved = checkpoint.parameters
    for name, tensor in own.items():
        if name not in saved:
            raise CheckpointError(f"{path} is of another network: it has no {name}")
        if saved[name].shape != tensor.shape:
            shapes = f"{tuple(saved[name].shape)}, not {tuple(tensor.shape)}"
            raise CheckpointError(f"{path} is of another network: {name} is {shapes}")
    extra = sorted(saved.keys() - own.keys())
    if extra:
        raise CheckpointError(f"{path} is of another network: it has {extra[0]} too")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved[name])
