"""Describes what is trained: names and numbers that a file can hold. Nothing is built here."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline import user_code
from paceline.built_in import BUILT_IN
from paceline.errors import WorkloadError, a_type, nearest
from paceline.learning_rate import default_rate, parse_schedule
from paceline.settings import check, read, read_any, read_toml, setting, settings_of

LOSSES = ("cross-entropy", "binary-cross-entropy", "squared", "hinge", "model")
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "adamw", "nadam")
ACTIVATIONS = ("sigmoid", "tanh", "relu")
PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "float64")
MEMORY_FORMATS = {"contiguous": "contiguous_format", "channels-last": "channels_last"}
"""By PyTorch's name."""
STEPS = ("auto", "plain", "flat", "compiled", "graph")
TUNE = "tune"
"""In place of a kind of step: the fastest one, found by trying them on this machine before training."""
MODEL, OPTIMIZER, DATA, DEVICE = "Model", "Optimizer", "Data", "Device"
"""Panels of the help."""
MOST_BATCH = 2**31 - 1
"""PyTorch counts samples of many operations in 32 bits."""
MOST_EPOCHS = 1_000_000
"""The record has a row for every epoch and is written after each."""


def _check_device(device: str) -> None:
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", device):
        raise WorkloadError(f"device {device!r} is not one of auto, cpu, cuda, cuda:N")


@dataclass(frozen=True)
class Workload:
    """What is trained, on what, and how. Any field is a keyword argument, a TOML key and `--set KEY=VALUE`."""

    network: str = setting("mlp", "A built-in network (see paceline models) or module:function.", group=MODEL)
    data: str = setting(
        "digits", "Data source (see paceline data list), NAME:N for its first N samples, or module:function.",
        group=DATA, verbs=("train", "measure", "predict", "simulate", "plan", "calibrate"),
    )  # fmt: skip
    loss: str = setting(
        "cross-entropy", "Loss function, model (use the .loss that the network returns), or module:name.",
        group=MODEL, choices=LOSSES, or_custom=True,
    )  # fmt: skip
    optimizer: str = setting(
        "sgd", "Optimizer (or module:name of a torch.optim class, or of a function of the parameters).",
        group=OPTIMIZER, choices=OPTIMIZERS, or_custom=True, verbs=("train",),
    )  # fmt: skip
    lr: float = setting(
        0.1, "Learning rate; default: that of the network, or PyTorch's for the optimizer.",
        group=OPTIMIZER, above=0, verbs=("train",),
    )  # fmt: skip
    schedule: str = setting(
        "constant",
        "Learning rate schedule: constant, step:EPOCHS:FACTOR or cosine, each optionally after warm-up:EPOCHS+, or "
        "module:name.",
        group=OPTIMIZER, check=parse_schedule,
    )  # fmt: skip
    l1: float = setting(0.0, "L1 penalty.", group=OPTIMIZER, least=0)
    l2: float = setting(
        0.0, "L2 penalty: l2 times each parameter is added to its gradient, like weight_decay in PyTorch's SGD.",
        group=OPTIMIZER, least=0,
    )  # fmt: skip
    momentum: float = setting(
        0.9, "Momentum of the optimizers momentum and nesterov.", group=OPTIMIZER, least=0, below=1
    )
    betas: tuple[float, float] = setting(
        (0.9, 0.999), "Decay rates of the running averages in adam, adamw and nadam.",
        group=OPTIMIZER, least=0, below=1,
    )  # fmt: skip
    eps: float | None = setting(
        None, "Added to the denominator by adaptive optimizers; none: PyTorch's default.", group=OPTIMIZER, above=0
    )
    weight_decay: float | None = setting(
        None, "Decoupled weight decay of adamw; none: PyTorch's default, 0.01.", group=OPTIMIZER, least=0
    )
    clip_norm: float = setting(
        0.0, "Clip the global norm of the gradient to this value; 0: no clipping.",
        group=OPTIMIZER, least=0, verbs=("train",),
    )  # fmt: skip
    accumulate: int = setting(1, "Gradient accumulation: number of micro-batches per batch.", group=OPTIMIZER, least=1)
    metric: str = setting(
        "", "module:name of a function (outputs, targets) -> number, computed on the test data.", group=MODEL
    )
    dropout: float | None = setting(None, "Dropout; none: the network's default.", group=MODEL, least=0, below=1)
    activation: str | None = setting(
        None, "Activation function; none: the network's default.", group=MODEL, choices=ACTIVATIONS
    )
    init: str = setting(
        "default", "Initial weights: default, small[:STD], xavier, kaiming, or the directory of a run.", group=MODEL
    )
    options: dict[str, Any] = setting(
        {}, "Other arguments of a built-in network, e.g. options.hidden=128 or options.auxiliary=false.", group=MODEL
    )
    batch: int = setting(
        64, "Samples per step.", group=DATA, least=1, most=MOST_BATCH,
        verbs=("train", "measure", "predict", "simulate", "plan", "calibrate"),
    )  # fmt: skip
    epochs: int = setting(10, "Passes over the training data.", group=DATA, least=1, most=MOST_EPOCHS, verbs=("train",))
    seed: int = setting(0, "Random seed.", group=DATA, least=0, most=2**63 - 1, verbs=("train", "simulate"))
    device: str = setting(
        "auto", "auto, cpu, cuda or cuda:N.", group=DEVICE, check=_check_device, verbs=("train", "measure")
    )
    threads: int = setting(
        0, "Number of CPU threads; 0: automatic, at most the number of cores.",
        group=DEVICE, least=0, verbs=("train", "measure", "predict"),
    )  # fmt: skip
    precision: str = setting(
        "float32", "Numerical precision.", group=DEVICE, choices=PRECISIONS, verbs=("train", "predict")
    )
    memory_format: str = setting(
        "auto", "Memory format of images and convolution weights; auto: channels-last where convolutions gain from it.",
        group=DEVICE, choices=("auto", *MEMORY_FORMATS), verbs=("train", "predict"),
    )  # fmt: skip
    top: int = setting(5, "The n of top-n accuracy.", group=DATA, least=1)
    decoded_cache_gb: float = setting(
        0.0, "Keep decoded images of an image folder on disk, up to this many GB; 0: do not keep them.",
        group=DATA, least=0,
    )  # fmt: skip
    phases: str = setting(
        "", "module:function (network, workload) -> list of phases; empty: one loss and its backward pass.",
        group=MODEL,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self, WorkloadError)
        if self.optimizer == "nesterov" and not self.momentum:
            raise WorkloadError(
                "momentum=0 should be above 0 for nesterov; use optimizer sgd to train without momentum"
            )
        if self.accumulate > self.batch:
            raise WorkloadError(f"accumulate={self.accumulate} should be at most the batch, {self.batch}")
        if ":" in self.optimizer:
            self._check_own_optimizer()
        elif self.weight_decay and self.optimizer != "adamw":
            raise WorkloadError(
                f"weight_decay={self.weight_decay:g} is for optimizer adamw, not {self.optimizer}; set l2 instead"
            )

    def _check_own_optimizer(self) -> None:
        """A setting that could not take effect is better refused."""
        for key in ("l1", "l2", "momentum", "betas", "eps", "weight_decay"):
            if getattr(self, key) != Workload.__dataclass_fields__[key].default:
                raise WorkloadError(f"{key} is for built-in optimizers; set it inside {self.optimizer} itself")


OTHERS = {"optimizer": "sgd", "lr": 0.1}
"""What a network is trained with, unless it is built in and has settings of its own."""


def resolve(place: str, settings: Mapping[str, Any] | None = None) -> Workload:
    """Return the workload of a built-in name, a TOML file or `module:function`, changed by `settings`.

    Values of `settings` may be text, as they come from a command line.

    >>> paceline.resolve("lenet5", {"data": "digits", "batch": "32"}).batch
    32
    """
    if not isinstance(place, str) or not isinstance(settings, Mapping | None):
        raise WorkloadError(
            f"resolve takes a name and a dictionary of settings, not {place!r:.60} and {settings!r:.60}"
        )
    given = dict(settings or {})
    if place.endswith(".toml"):
        given = {**given_by(place), **given}
    elif place in BUILT_IN:
        given = {"network": place, **given}
    elif ":" in place:
        made = _made_by(place)
        if isinstance(made, Workload):
            return with_settings(made, given)
        given = {"network": place, **given}
    elif Path(place).suffix == ".py":
        raise WorkloadError(f"{place!r}: name the function too, as in {Path(place).stem}:build")
    else:
        hint = "nor is there such a directory" if "/" in place else nearest(place, BUILT_IN)
        raise WorkloadError(f"no network {place!r}: {hint}")
    network = str(given.get("network", "mlp"))
    if network not in BUILT_IN and ":" not in network:
        raise WorkloadError(f"no network {network!r}: {nearest(network, BUILT_IN)}")
    return from_network(network, given)


def from_network(network: str, given: Mapping[str, Any]) -> Workload:
    """The network with the settings that suit it, and those `given` on top."""
    defaults = {**OTHERS, **BUILT_IN.get(network, {})}
    usual, optimizer = defaults["optimizer"], str(given.get("optimizer", defaults["optimizer"]))
    if optimizer != usual:
        defaults.pop("schedule", None)  # it was chosen for that optimizer and its rate
        defaults["lr"] = default_rate(optimizer, defaults["lr"], chosen_for=usual)
    if optimizer == "adamw" or ":" in optimizer:
        defaults.pop("l2", None)  # its decoupled weight decay does the same
    return with_settings(Workload(**{**defaults, "network": network}), given)


def given_by(place: str) -> dict[str, Any]:
    """The settings that a workload's place itself gives: those of its file, if it is one."""
    if not place.endswith(".toml"):
        return {}
    given = read_toml(place, WorkloadError)
    try:
        for name, value in _read_plain(given).items():
            settings_of(Workload)[name].read(value, WorkloadError)
    except WorkloadError as error:
        raise WorkloadError(f"{place}: {error}") from None
    return given


def with_settings(workload: Workload, settings: Mapping[str, Any]) -> Workload:
    """`workload` with some fields replaced; text is read as the field's type."""
    changes = _read_plain(settings)
    options = {key.partition(".")[2]: value for key, value in settings.items() if is_option(key)}
    if options:
        given = {key: read_any(value) if isinstance(value, str) else value for key, value in options.items()}
        changes["options"] = {**changes.get("options", workload.options), **given}
    return dataclasses.replace(workload, **changes)


def check_workload_keys(settings: Iterable[str]) -> None:
    _read_plain(dict.fromkeys(settings))


def _read_plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in settings.items() if not is_option(key)}
    return read(Workload, plain, WorkloadError, "a workload")


def is_option(key: str) -> bool:
    """Whether it is one of the options of a built-in network, as `options.hidden`."""
    return key.startswith("options.") and len(key) > len("options.")


def _made_by(place: str) -> Any:
    """What `module:function` returns; a network has no values, since here only its type is of interest."""
    from torch import nn

    from paceline.unallocated import build_unallocated

    user_code.find(place)  # what importing its module makes is real
    made = build_unallocated(lambda: user_code.call(place), place)
    if not isinstance(made, nn.Module | Workload):
        raise WorkloadError(f"{place} returned {a_type(made)}; it should return an nn.Module or a Workload")
    return made
