"""Phases of the user's own: several parameter sets, each with its rule and its own gradient."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.errors import NetworkError, WorkloadError
from paceline.step.make import make_step
from paceline.step.optimizers import Rule
from paceline.step.phase import Batch, LossPhase, Outcome, phases_of
from paceline.step.tally import Tally
from paceline.training.step_choice import choose_step
from paceline.workload import Workload
from tests.step.small_parts import parts_for, rows


class TwoParts(nn.Module):
    """An autoencoder and a classifier on its code."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.code, self.back, self.classes = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.classes(torch.tanh(self.code(x)))


class Reconstruct:
    """Draws noise from the generator, so a wrong seed shows."""

    name = "reconstruct"

    def __init__(self, network: TwoParts) -> None:
        self.network, self.rule = network, Rule("momentum", 0.05)
        self.parameters = [*network.code.parameters(), *network.back.parameters()]

    def gradient(self, batch: Batch, generator: torch.Generator) -> Outcome:
        x = batch[0]
        noisy = x + 0.1 * torch.randn(x.shape, dtype=x.dtype, generator=generator)
        loss = F.mse_loss(self.network.back(torch.tanh(self.network.code(noisy))), x)
        return Outcome(loss.detach(), torch.autograd.grad(loss, self.parameters))


class Classify:
    name = "classify"

    def __init__(self, network: TwoParts) -> None:
        self.network, self.rule = network, Rule("adam", 0.01, schedule="cosine")
        self.parameters = list(network.classes.parameters())

    def gradient(self, batch: Batch, generator: torch.Generator) -> Outcome:
        output = self.network(batch[0])
        loss = F.cross_entropy(output, batch[1])
        return Outcome(loss.detach(), torch.autograd.grad(loss, self.parameters), output.detach())


def trained(kind: str) -> tuple[dict[str, Tensor], list[float]]:
    network = TwoParts()
    parts = parts_for(
        network, rows(43), [Reconstruct(network), Classify(network)], phases="own:phases", precision="float64"
    )
    step, _ = make_step(parts, kind)
    losses = []
    for epoch in range(2):
        tally = Tally(1)
        step.begin(epoch)
        step.advance(parts.updates_per_epoch, tally)
        losses.append(tally.read().loss)
    return {k: v.clone() for k, v in network.state_dict().items()}, losses


def test_two_phases_give_the_same_in_every_step():
    plain, plain_losses = trained("plain")
    flat, flat_losses = trained("flat")
    for name, value in plain.items():
        torch.testing.assert_close(flat[name], value, rtol=1e-9, atol=1e-11)
    assert flat_losses == pytest.approx(plain_losses, rel=1e-9)
    assert plain_losses[1] < plain_losses[0]


def test_two_phases_agree_with_a_loop_written_by_hand():
    network = TwoParts().double()
    parts = parts_for(TwoParts(), rows(43), [], phases="own:phases", precision="float64")
    first, second = Reconstruct(network), Classify(network)
    optimizers = [
        torch.optim.SGD(first.parameters, lr=0.05, momentum=0.9),
        torch.optim.Adam(second.parameters, lr=0.01),
    ]
    for epoch in range(2):
        for number, batch in enumerate(parts.feeder.batches(epoch)):
            parts.seed(epoch, number)
            for phase, optimizer in zip((first, second), optimizers, strict=True):
                if phase is second:
                    optimizer.param_groups[0]["lr"] = parts.rate(phase, epoch, number)
                for p, g in zip(phase.parameters, phase.gradient(batch, parts.generator).gradients, strict=True):
                    p.grad = g
                optimizer.step()
    for name, value in trained("plain")[0].items():
        torch.testing.assert_close(network.state_dict()[name], value, rtol=1e-12, atol=1e-13)


def test_phases_that_share_a_parameter_take_the_plain_step():
    network = TwoParts()
    whole = LossPhase(network, Workload())
    whole.parameters = [*network.code.parameters(), *network.classes.parameters()]
    step, choice = choose_step(parts_for(network, rows(), [Reconstruct(network), whole], phases="own:phases"), "auto")
    assert (step.kind, choice.reason) == ("plain", "two phases share a parameter")


@pytest.mark.slow
def test_custom_phases_are_compiled_too():
    losses = []
    for kind in ("plain", "compiled"):
        torch.manual_seed(0)
        network = TwoParts()
        step, _ = make_step(parts_for(network, rows(), [Classify(network)], phases="own:phases"), kind)
        tally = Tally(1)
        step.begin(0)
        step.advance(4, tally)
        losses.append(tally.read().loss)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


# Mistakes


def returning(value: Any, monkeypatch: pytest.MonkeyPatch, tmp_path) -> str:
    """What is said when the user's function returns `value`."""
    (tmp_path / "my_phases.py").write_text("value = None\ndef phases(network, workload):\n    return value\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_phases", raising=False)
    import my_phases  # type: ignore[import-not-found]

    my_phases.value = value
    with pytest.raises(WorkloadError) as raised:
        phases_of(Workload(phases="my_phases:phases"), TwoParts())
    monkeypatch.delitem(sys.modules, "my_phases")
    assert "\n" not in str(raised.value)
    return str(raised.value)


def with_changes(**changes: Any) -> Classify:
    phase = Classify(TwoParts())
    for name, value in changes.items():
        setattr(phase, name, value)
    return phase


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "my_phases:phases returned None; it should return a list of phases"),
        ([], "my_phases:phases returned []; it should return a list of phases"),
        ([3], "my_phases:phases returned an int; a phase has name, parameters, rule and gradient(batch, generator)"),
        ([with_changes(rule="sgd")], "phase 'classify' of my_phases:phases: its rule should be a Rule"),
        ([with_changes(rule=Rule("sdg", 1.0))], "its optimizer one of sgd, momentum"),
        ([with_changes(parameters=[])], "its parameters should be a list with at least one, not []"),
        (
            [with_changes(parameters=TwoParts().parameters())],
            "its parameters should be a list with at least one, not <gen",
        ),
        ([with_changes(parameters=[torch.ones(1)])], "its parameters should be nn.Parameter"),
    ],
)
def test_a_function_that_returns_no_phases(monkeypatch, tmp_path, value, expected):
    assert expected in returning(value, monkeypatch, tmp_path)


def outcome(**changes: Any) -> Outcome:
    zeros = [torch.zeros(3, 4), torch.zeros(3)]
    return Outcome(**{"loss": torch.zeros(()), "gradients": zeros, **changes})


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ((1, 2), "gradient returned a tuple; it should return an Outcome"),
        (outcome(gradients=[]), "0 gradients for 2 parameters; give one each, or None"),
        (outcome(gradients=[torch.zeros(4, 3), None]), "a gradient is (4, 3), its parameter (3, 4)"),
        (outcome(loss=None), "an outcome needs a loss, or log-probabilities as its output"),
        (outcome(loss=0.5), "the loss should be a tensor with one number and no dimensions"),
        (outcome(loss=torch.zeros(8)), "the loss should be a tensor with one number and no dimensions"),
    ],
)
@pytest.mark.parametrize("kind", ["auto", "plain"])
def test_a_gradient_that_is_none(result, expected, kind):
    network = TwoParts()
    phase = Classify(network)
    phase.gradient = lambda batch, generator: result  # type: ignore[method-assign]
    with pytest.raises(NetworkError) as raised:
        choose_step(parts_for(network, rows(), [phase], phases="own:phases"), kind)
    assert str(raised.value) == f"phase 'classify' of own:phases: {expected}"
