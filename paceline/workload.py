"""Describes what is trained: names and numbers that a file can hold. Nothing is built here."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline import user_code
from paceline.errors import WorkloadError, nearest

LOSSES = ("cross-entropy", "binary-cross-entropy", "squared", "hinge")
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "adamw", "nadam")
ACTIVATIONS = ("sigmoid", "tanh", "relu")
PRECISIONS = ("float32", "tf32", "bfloat16", "float64")
STEPS = ("auto", "plain", "flat", "compiled", "graph")
MOST_BATCH = 2**31 - 1
"""PyTorch counts samples of many operations in 32 bits."""
MOST_EPOCHS = 1_000_000
"""The record has a row for every epoch and is written after each."""


@dataclass(frozen=True)
class Workload:
    """What is trained, on what, and how. Any field can be a TOML key or `--set KEY=VALUE`."""

    network: str = "mlp"
    """A built-in name, or `module:function` that returns an `nn.Module`."""
    data: str = "digits"
    """A data source, see `paceline data list`, or `module:function`."""
    loss: str = "cross-entropy"
    optimizer: str = "sgd"
    lr: float = 0.1
    schedule: str = "constant"
    """constant, step:EPOCHS:FACTOR or cosine; a warm-up goes before it: warm-up:EPOCHS+cosine."""
    l1: float = 0.0
    l2: float = 0.0
    """Adds l2 times each parameter to its gradient, as PyTorch's `weight_decay` in SGD and Adam."""
    momentum: float = 0.9
    """Of the optimizers momentum and nesterov."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the running averages in adam, adamw and nadam."""
    eps: float | None = None
    """Added to the denominator by adaptive optimizers. None: PyTorch's default for the optimizer."""
    weight_decay: float | None = None
    """Decoupled weight decay, for adamw only. None: PyTorch's default, 0.01."""
    clip_norm: float = 0.0
    """Clips the global norm of each update's gradient to this value; 0: no clipping."""
    dropout: float | None = None
    """None: what the network has by default."""
    activation: str | None = None
    init: str = "default"
    """Initial weights: default, small[:STD], xavier or kaiming."""
    options: dict[str, Any] = field(default_factory=dict)
    """What else a built-in network takes, as `options.hidden=128` or `options.auxiliary=false`."""
    batch: int = 64
    epochs: int = 10
    seed: int = 0
    device: str = "auto"
    threads: int = 0
    """Threads of a CPU operation; 0 takes what suits the network, at most the cores there are."""
    precision: str = "float32"
    top: int = 5
    """The n of top-n accuracy."""
    phases: str = ""
    """`module:function` from (network, workload) to a list of phases; empty: one, a loss and its backward."""

    def __post_init__(self) -> None:
        _check_type(self)
        _one_of("loss", self.loss, LOSSES)
        _one_of("optimizer", self.optimizer, OPTIMIZERS)
        _one_of("precision", self.precision, PRECISIONS)
        if self.activation is not None:
            _one_of("activation", self.activation, ACTIVATIONS)
        _number("lr", self.lr, above=0.0)
        _number("l1", self.l1, least=0.0)
        _number("l2", self.l2, least=0.0)
        _check_optimizer_constants(self)
        if self.dropout is not None:
            _number("dropout", self.dropout, least=0.0, below=1.0)
        _number("batch", self.batch, least=1, most=MOST_BATCH)
        _number("epochs", self.epochs, least=1, most=MOST_EPOCHS)
        _number("threads", self.threads, least=0)
        _number("seed", self.seed, least=0, below=2**63)
        _number("top", self.top, least=1)
        parse_schedule(self.schedule)
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", self.device):
            raise WorkloadError(f"device {self.device!r} is not one of auto, cpu, cuda, cuda:N")


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes: linear warm-up over some epochs, then constant, step or cosine."""

    shape: str = "constant"
    warm_up: float = 0.0
    every: float = 30.0
    factor: float = 0.1


@functools.cache
def parse_schedule(text: str) -> Schedule:
    """`warm-up:1+step:30:0.1` and the like."""
    schedule = Schedule()
    for part in text.split("+"):
        name, *numbers = part.split(":")
        try:
            values = [float(number) for number in numbers]
        except ValueError:
            raise WorkloadError(f"schedule {text!r}: {part!r} should be NAME:NUMBER") from None
        if any(not math.isfinite(v) or v <= 0 for v in values):
            raise WorkloadError(f"schedule {text!r}: {part!r} needs numbers above 0")
        if name in ("constant", "cosine") and not values:
            schedule = dataclasses.replace(schedule, shape=name)
        elif name == "step" and len(values) <= 2:
            every, factor = [*values, *(30.0, 0.1)[len(values) :]]
            schedule = dataclasses.replace(schedule, shape="step", every=every, factor=factor)
        elif name == "warm-up" and len(values) <= 1:
            schedule = dataclasses.replace(schedule, warm_up=values[0] if values else 1.0)
        else:
            raise WorkloadError(
                f"schedule {text!r}: {part!r} is none of constant, cosine, step:EPOCHS:FACTOR, warm-up:EPOCHS"
            )
    return schedule


IMAGENET = {"data": "synthetic:3x224x224/1000", "optimizer": "momentum", "l2": 5e-4, "epochs": 1}

# What a built-in name means beyond the defaults above; chosen so that each trains well as it is.
BUILT_IN: dict[str, dict[str, Any]] = {
    "mlp": {"batch": 100, "optimizer": "momentum", "lr": 0.1, "schedule": "cosine", "epochs": 20},
    "dnn": {
        "batch": 64, "optimizer": "momentum", "lr": 0.05, "schedule": "cosine", "l2": 1e-5, "dropout": 0.1,
        "epochs": 20,
    },
    "lstm": {"batch": 100, "optimizer": "adam", "lr": 4e-3, "schedule": "cosine", "epochs": 8},
    "lenet5": {"batch": 64, "optimizer": "adam", "lr": 2e-3, "schedule": "cosine", "epochs": 10},
    "alexnet": {**IMAGENET, "batch": 128, "lr": 0.01},
    "vgg11": {**IMAGENET, "batch": 32, "lr": 0.01},
    "vgg16": {**IMAGENET, "batch": 32, "lr": 0.01},
    "googlenet": {**IMAGENET, "batch": 32, "lr": 0.01},
    "resnet18": {**IMAGENET, "batch": 64, "lr": 0.05, "l2": 1e-4},
    "resnet50": {**IMAGENET, "batch": 32, "lr": 0.05, "l2": 1e-4},
    "resnet20": {
        "data": "cifar10", "batch": 128, "optimizer": "momentum", "lr": 0.1, "schedule": "cosine", "l2": 1e-4,
        "epochs": 160,
    },
    "textlstm": {"data": "text", "batch": 32, "optimizer": "adam", "lr": 2e-3, "schedule": "cosine", "epochs": 5},
    "transformer": {
        "data": "text", "batch": 32, "optimizer": "adam", "lr": 1e-3, "schedule": "warm-up:0.2+cosine", "epochs": 5,
    },
}  # fmt: skip


def resolve(place: str, settings: Mapping[str, Any] | None = None) -> Workload:
    """The workload a built-in name, a TOML file or `module:function` stands for, with `settings` on top.

    Values of `settings` may be text, as they come from a command line.
    """
    given = dict(settings or {})
    if place.endswith(".toml"):
        given = {**given_by(place), **given}
    elif place in BUILT_IN:
        given = {"network": place, **given}
    elif ":" in place:
        made = user_code.call(place)
        if isinstance(made, Workload):
            return with_settings(made, given)
        _check_is_module(place, made)
        given = {"network": place, **given}
    elif Path(place).suffix == ".py":
        raise WorkloadError(f"{place!r}: name the function too, as in {Path(place).stem}:build")
    else:
        raise WorkloadError(f"no network {place!r}: {nearest(place, BUILT_IN)}")
    network = str(given.get("network", "mlp"))
    if network not in BUILT_IN and ":" not in network:
        raise WorkloadError(f"no network {network!r}: {nearest(network, BUILT_IN)}")
    defaults = dict(BUILT_IN.get(network, {}))
    optimizer = given.get("optimizer", defaults.get("optimizer"))
    if optimizer != defaults.get("optimizer"):
        defaults.pop("schedule", None)  # it was chosen for that optimizer and its rate
    if optimizer == "adamw":
        defaults.pop("l2", None)  # its decoupled weight decay does the same
    return with_settings(Workload(**defaults), given)


def given_by(place: str) -> dict[str, Any]:
    """The settings that a workload's place itself gives: those of its file, if it is one."""
    return _read_toml(Path(place)) if place.endswith(".toml") else {}


def with_settings(workload: Workload, settings: Mapping[str, Any]) -> Workload:
    """`workload` with some fields replaced; text is read as the field's type."""
    check_workload_keys(settings)
    hints = typing.get_type_hints(Workload)
    changes: dict[str, Any] = {}
    for key, value in settings.items():
        table, _, option = key.partition(".")
        if table == "options" and option:
            changes["options"] = {**changes.get("options", workload.options), option: _read_option(value)}
            continue
        changes[key] = _read(key, hints[key], value) if isinstance(value, str) else value
    return dataclasses.replace(workload, **changes)


def check_workload_keys(settings: Iterable[str]) -> None:
    known = [f.name for f in dataclasses.fields(Workload)]
    for key in settings:
        if key not in known and not (key.startswith("options.") and key != "options."):
            raise WorkloadError(f"no key {key!r} in a workload: {nearest(key, known)}")


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """`KEY=VALUE` words as a table."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise WorkloadError(f"--set {pair!r} should be KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise WorkloadError(f"no file {path}") from None
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path} is not valid TOML: {error}") from error


def _read(key: str, kind: Any, text: str) -> Any:
    if isinstance(kind, types.UnionType):
        if text.lower() in ("none", "default"):
            return None
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    try:
        if typing.get_origin(kind) is tuple:
            return [float(number) for number in text.strip("[]()").split(",")]
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        raise WorkloadError(f"{key}={text!r} should be {_type_name(typing.get_origin(kind) or kind)}") from None


def _read_option(value: Any) -> Any:
    """Text as the TOML value it looks like, or as text."""
    if not isinstance(value, str):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def _type_name(kind: Any) -> str:
    names = {
        int: "a whole number", float: "a number", bool: "true or false", dict: "a table",
        tuple: "two numbers, as [0.9, 0.999]",
    }  # fmt: skip
    return names.get(kind, "text")


def _check_type(workload: Workload) -> None:
    for key, kind in typing.get_type_hints(Workload).items():
        value = getattr(workload, key)
        allowed = typing.get_args(kind) if isinstance(kind, types.UnionType) else (typing.get_origin(kind) or kind,)
        if float in allowed and isinstance(value, int) and not isinstance(value, bool):
            object.__setattr__(workload, key, float(value))
        elif tuple in allowed:
            object.__setattr__(workload, key, _two_numbers(key, value))
        elif not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise WorkloadError(f"{key}={value!r} should be {_type_name(allowed[0])}")


def _two_numbers(key: str, value: Any) -> tuple[float, float]:
    """A file or a record has them as a list."""
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(type(n) in (int, float) for n in value):
        raise WorkloadError(f"{key}={value!r:.60} should be {_type_name(tuple)}")
    return float(value[0]), float(value[1])


def _check_is_module(place: str, made: Any) -> None:
    from torch import nn

    if not isinstance(made, nn.Module):
        raise WorkloadError(f"{place} returned a {type(made).__name__}; it should return an nn.Module or a Workload")


def _check_optimizer_constants(workload: Workload) -> None:
    optimizer, decay = workload.optimizer, workload.weight_decay
    _number("momentum", workload.momentum, least=0.0, below=1.0)
    if optimizer == "nesterov" and not workload.momentum:
        raise WorkloadError("momentum=0 should be above 0 for nesterov; use optimizer sgd to train without momentum")
    for beta in workload.betas:
        _number("betas", beta, least=0.0, below=1.0)
    if workload.eps is not None:
        _number("eps", workload.eps, above=0.0)
    _number("clip_norm", workload.clip_norm, least=0.0)
    if decay is not None:
        _number("weight_decay", decay, least=0.0)
        if decay and optimizer != "adamw":
            raise WorkloadError(f"weight_decay={decay:g} is for optimizer adamw, not {optimizer}; set l2 instead")


def _one_of(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise WorkloadError(f"{key} {value!r} is unknown: {nearest(value, known)}")


def _number(
    key: str,
    value: float,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> None:
    try:
        finite = math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        finite = False
    if not finite:
        raise WorkloadError(f"{key}={str(value)[:20]} is not a finite number")
    if value > most:
        raise WorkloadError(f"{key}={value} should be at most {most:,}")
    if value < least or value <= above or value >= below:
        limits = [f"at least {least:g}"] if least > -math.inf else []
        limits += [f"above {above:g}"] if above > -math.inf else []
        limits += [f"below {below:g}"] if below < math.inf else []
        raise WorkloadError(f"{key}={value:g} should be {' and '.join(limits)}")
