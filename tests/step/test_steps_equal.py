"""Every kind of step gives a plain PyTorch loop's losses over the same batches."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from paceline.step.build import assemble, load_data
from paceline.step.make import make_step
from paceline.step.phase import Outcome
from paceline.step.step import Parts
from paceline.step.tally import Tally
from paceline.workload import OPTIMIZERS, Workload, resolve
from tests.step.plain_loop import losses_of_plain_loop

STEPS = 100
FEWER = 40
"""Of networks that take longer: two and a half epochs of `small`."""
gpu = pytest.mark.gpu


class Losses(Tally):
    """Keeps every single loss."""

    def __init__(self) -> None:
        super().__init__(1)
        self.seen: list[float] = []

    def add(self, loss, output, target):  # type: ignore[no-untyped-def]
        self.seen.append((F.cross_entropy(output, target) if loss is None else loss).item())

    def add_many(self, losses, size, outputs, targets):  # type: ignore[no-untyped-def]
        if losses is None:
            losses = F.cross_entropy(outputs, targets, reduction="none").view(-1, size).mean(1)
        self.seen += losses.tolist()


def parts_of(workload: Workload, device: str) -> Parts:
    place = torch.device(device)
    return assemble(workload, load_data(workload), place)


def losses_of(workload: Workload, kind: str, device: str, steps: int = STEPS) -> list[float]:
    parts = parts_of(workload, device)
    step, _ = make_step(parts, kind)
    losses, epoch = Losses(), 0
    while len(losses.seen) < steps:
        step.begin(epoch)
        step.advance(min(parts.updates_per_epoch, steps - len(losses.seen)), losses)
        epoch += 1
    step.close()
    return losses.seen


_expected: dict[str, list[float]] = {}


def expected_losses(workload: Workload, device: str, steps: int) -> list[float]:
    """A workload's are found once for all kinds of step."""
    key = f"{workload} {device} {steps}"
    if key not in _expected:
        _expected[key] = losses_of_plain_loop(parts_of(workload, device), steps)
    return _expected[key]


def largest_difference(workload: Workload, kind: str, device: str = "cpu", steps: int = STEPS) -> float:
    expected = expected_losses(workload, device, steps)
    found = losses_of(workload, kind, device, steps)
    assert len(found) == len(expected) == steps
    return max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))


def small(network: str, **settings: object) -> Workload:
    """A workload whose epochs end with a smaller batch, several of them within the compared steps."""
    return resolve(network, {"data": "digits:500", "batch": 32, "lr": 0.01, "schedule": "constant", **settings})


def with_optimizer(optimizer: str, **settings: object) -> Workload:
    """Adaptive rules divide by the gradient's size, so where it vanishes they turn rounding into steps; a small
    rate and the larger `l2` keep that below what is compared."""
    rates = {"adadelta": 0.05, "rmsprop": 1e-3, "adam": 1e-3, "adamw": 1e-3, "nadam": 1e-3}
    given = {"optimizer": optimizer, "dropout": 0.3, "l2": 1e-2, "lr": rates.get(optimizer, 0.01)}
    return small("dnn", **{**given, **settings})


CONSTANTS: dict[str, dict[str, object]] = {
    "momentum": {"optimizer": "momentum", "momentum": 0.5},
    "betas": {"optimizer": "adam", "betas": (0.8, 0.95), "eps": 1e-3},
    "weight_decay": {"optimizer": "adamw", "weight_decay": 0.2},
    "clip_norm": {"optimizer": "momentum", "clip_norm": 0.3},
    "clip_norm, l1": {"optimizer": "adamw", "clip_norm": 0.3, "l1": 1e-4},
}


@pytest.mark.parametrize("kind", ["plain", "flat"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_all_optimizers_follow_pytorch(kind: str, optimizer: str) -> None:
    assert largest_difference(with_optimizer(optimizer), kind) <= 1e-5


@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_elastic_net_follows_pytorch(kind: str) -> None:
    assert largest_difference(small("dnn", optimizer="sgd", l1=1e-4, l2=1e-3), kind) <= 1e-5


@pytest.mark.parametrize("kind", ["plain", "flat"])
@pytest.mark.parametrize("given", CONSTANTS.values(), ids=CONSTANTS)
def test_constants_of_optimizers_and_clipping_follow_pytorch(kind: str, given: dict[str, object]) -> None:
    assert largest_difference(with_optimizer(**given), kind) <= 1e-5  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["plain", "flat"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_network_that_autograd_differentiates_is_clipped_too(kind: str, optimizer: str) -> None:
    workload = small("lenet5", optimizer=optimizer, clip_norm=0.1, **({"lr": 1e-3} if optimizer == "adam" else {}))
    assert largest_difference(workload, kind, steps=FEWER) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw", "nadam"])
def test_compiled_follows_pytorch_with_the_same_dropout_masks(optimizer: str) -> None:
    assert largest_difference(with_optimizer(optimizer), "compiled") <= 1e-5


@pytest.mark.slow
def test_compiled_clips_as_pytorch_does() -> None:
    assert largest_difference(with_optimizer("adamw", betas=(0.8, 0.95), clip_norm=0.3), "compiled") <= 1e-5


@pytest.mark.parametrize("network", ["mlp", "lstm", "lenet5"])
@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_networks_without_batch_norm_in_float32(network: str, kind: str) -> None:
    assert largest_difference(small(network, optimizer="sgd"), kind, steps=FEWER) <= 1e-5


def with_batch_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 4)
    )


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        ("plain", "resnet20"), ("flat", "resnet20"),
        # Compiling resnet20 takes a minute and a half.
        pytest.param("compiled", f"{__name__}:with_batch_norm", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_batch_norm_in_float64(kind: str, network: str) -> None:
    workload = resolve(
        network,
        {
            "data": "synthetic:3x8x8/4:100",
            "batch": 16,
            "optimizer": "momentum",
            "lr": 0.01,
            "schedule": "constant",
            "precision": "float64",
            "threads": 1,
        },
    )
    assert largest_difference(workload, kind, steps=16) <= 1e-9  # two epochs, each with a smaller batch at its end


@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_text(kind: str) -> None:
    small_one = {"options.depth": 1, "options.width": 32, "options.heads": 2, "optimizer": "sgd", "lr": 0.05}
    workload = resolve("transformer", {"data": "text:100", "batch": 8, "schedule": "constant", **small_one})
    assert largest_difference(workload, kind, steps=FEWER) <= 1e-5


def test_dropout_masks_are_a_function_of_the_position_not_of_history() -> None:
    parts = parts_of(small("dnn", dropout=0.5), "cpu")
    layer = torch.nn.Dropout(0.5)
    parts.seed(3, 7)
    first = layer(torch.ones(100))
    torch.rand(1000)
    parts.seed(3, 7)
    assert torch.equal(layer(torch.ones(100)), first)
    parts.seed(3, 8)
    assert not torch.equal(layer(torch.ones(100)), first)


@gpu
@pytest.mark.parametrize("kind", ["plain", "flat", "graph"])
@pytest.mark.parametrize("network", ["mlp", "dnn", "lstm", "lenet5"])
def test_gpu_steps_without_batch_norm(network: str, kind: str) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    workload = small(network, optimizer="sgd", **({"dropout": 0.3} if network == "dnn" else {}))
    assert largest_difference(workload, kind, "cuda") <= 1e-5


@gpu
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_graph_runs_every_optimizer(optimizer: str) -> None:
    assert largest_difference(with_optimizer(optimizer), "graph", "cuda") <= 1e-5


@gpu
@pytest.mark.parametrize("kind", ["flat", "graph"])
@pytest.mark.parametrize("given", CONSTANTS.values(), ids=CONSTANTS)
def test_gpu_constants_of_optimizers_and_clipping(kind: str, given: dict[str, object]) -> None:
    assert largest_difference(with_optimizer(**given), kind, "cuda") <= 1e-5  # type: ignore[arg-type]


@gpu
@pytest.mark.parametrize("kind", ["plain", "flat", "graph"])
def test_gpu_batch_norm_in_float64(kind: str) -> None:
    workload = resolve(
        "resnet20",
        {
            "data": "synthetic:3x16x16/4:100",
            "batch": 16,
            "optimizer": "momentum",
            "lr": 0.01,
            "schedule": "constant",
            "precision": "float64",
        },
    )
    torch.backends.cudnn.deterministic = True
    try:
        assert largest_difference(workload, kind, "cuda") <= 1e-9
    finally:
        torch.backends.cudnn.deterministic = False


def test_a_step_reports_the_outcome_of_its_first_labelled_phase() -> None:
    from paceline.step.step import reported

    silent, labelled = Outcome(torch.zeros(()), ()), Outcome(torch.ones(()), (), torch.zeros(2, 3))
    assert reported([silent, labelled]) is labelled
    assert reported([silent]) is silent


class ChannelsLast(torch.nn.Module):
    """A convolution of an input with the channels last: autograd returns the gradient of its weight in that layout."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.inner = torch.nn.Conv2d(1, 6, 3, padding=1), torch.nn.Conv2d(6, 8, 3, padding=1)
        self.last = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(self.wide(x).to(memory_format=torch.channels_last)).relu().mean((2, 3)))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_gradients_in_another_memory_layout_update_the_right_parameters(device):
    workload = small(f"{__name__}:ChannelsLast", optimizer="momentum", lr=0.1)
    assert largest_difference(workload, "flat", device, 40) < 1e-4
