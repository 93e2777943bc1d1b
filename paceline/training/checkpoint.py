"""A checkpoint: one file, written atomically, loaded without executing code.

It is what `torch.save` writes: a table whose `parameters` are the network's state dict, so that
`network.load_state_dict(torch.load("checkpoint.pt")["parameters"])` works in plain PyTorch.
"""

from __future__ import annotations

import errno
import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.errors import CheckpointError, OutputError
from paceline.output_file import replacing
from paceline.workload import Workload

SCHEMA = 2
NAME = "checkpoint.pt"
KINDS = {
    "epoch": int, "next_step": int, "updates": int, "samples": tuple, "record": str, "step_kind": str,
    "parameters": dict, "optimizer": dict, "score": dict,
}  # fmt: skip


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
        return self._condition("made_in")

    @property
    def made_on(self) -> str:
        """The device of the run; empty if it is not known."""
        return self._condition("device")

    def _condition(self, name: str) -> str:
        try:
            return str(json.loads(self.record)["conditions"].get(name, ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            return ""


def save_checkpoint(checkpoint: Checkpoint, directory: Path) -> None:
    """Replaces the checkpoint in `directory` in one move; what was there stays if this fails."""
    path = directory / NAME
    content = {"schema": SCHEMA, **vars(checkpoint), "workload": asdict(checkpoint.workload)}
    try:
        with replacing(path) as file:
            torch.save(content, file)
    except (OSError, RuntimeError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):  # torch.save reports a full disk as something else
            cause = cause.__context__
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
    if content["schema"] != SCHEMA:
        raise CheckpointError(
            f"{path} has schema {content['schema']}, this version reads {SCHEMA}; its parameters load in plain PyTorch"
        )
    del content["schema"]
    try:
        checkpoint = Checkpoint(**{**content, "workload": Workload(**content["workload"])})
        for name, kind in KINDS.items():
            if not isinstance(content[name], kind):
                raise TypeError(f"{name} is {content[name]!r:.40}")
        if not all(isinstance(t, Tensor) for t in checkpoint.parameters.values()):
            raise TypeError("parameters are not tensors")
        return checkpoint
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a checkpoint this version can read: {error}") from error


def load_parameters(network: nn.Module, checkpoint: Checkpoint, path: Path) -> None:
    """Copies the checkpoint's parameters into the network, or says how the two differ."""
    own = network.state_dict()
    saved = checkpoint.parameters
    for name, tensor in own.items():
        if name not in saved:
            raise CheckpointError(f"{path} belongs to another network: it has no {name}")
        if saved[name].shape != tensor.shape:
            shapes = f"{tuple(saved[name].shape)}, not {tuple(tensor.shape)}"
            raise CheckpointError(f"{path} belongs to another network: {name} is {shapes}")
    extra = sorted(saved.keys() - own.keys())
    if extra:
        raise CheckpointError(f"{path} belongs to another network: it has {extra[0]} too")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved[name])
