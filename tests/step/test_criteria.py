"""A network may bring what it is trained for: losses of some of its parameters, in some of the epochs."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.errors import WorkloadError
from paceline.networks.criterion import Criterion, SampleMetric
from paceline.step.make import make_step
from paceline.step.metrics import find_metric, metric_name
from paceline.step.optimizers import Rule
from paceline.step.phase import LossPhase, phases_of, share_a_parameter, stages_of
from paceline.step.schedule import rate_at
from paceline.step.step import Step
from paceline.step.tally import Tally
from paceline.workload import Workload
from tests.step.small_parts import parts_for, rows
from tests.step.staged_networks import Stacked

EPOCHS = 6
SETTINGS = {"epochs": EPOCHS, "precision": "float64", "optimizer": "momentum", "lr": 0.05, "l2": 1e-3}


class Reconstructing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.metric = SampleMetric("largest error", lambda x, y: (self(x) - x).abs().amax(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

    def criteria(self) -> list[Criterion]:
        return [Criterion("reconstruct", list(self.parameters()), lambda x, y: F.mse_loss(self(x), x))]


def trained(step: Step, epochs: range, first: int = 0) -> list[dict[str, Tensor]]:
    """The parameters after each epoch."""
    found = []
    for epoch in epochs:
        step.begin(epoch, first if epoch == epochs[0] else 0)
        step.advance(step.parts.updates_per_epoch - step.next, Tally(1))
        found.append({name: value.clone() for name, value in step.parts.network.state_dict().items()})
    return found


def staged(kind: str = "plain") -> Step:
    return make_step(parts_for(Stacked(), rows(43), **SETTINGS), kind)[0]


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name.partition(".")[0] for name in after if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_each_epoch_trains_the_parameters_of_its_phases_and_leaves_the_others_as_they_are(kind):
    """Also those with momentum left, and with an L2 penalty."""
    step = staged(kind)
    states = [{name: value.clone() for name, value in step.parts.network.state_dict().items()}]
    states += trained(step, range(EPOCHS))
    found = [changed(before, after) for before, after in itertools.pairwise(states)]
    assert found == [*[{"first"}] * 2, *[{"second"}] * 2, *[{"first", "second", "output"}] * 2]


def test_every_step_gives_the_same():
    for plain, flat in zip(
        trained(staged("plain"), range(EPOCHS)), trained(staged("flat"), range(EPOCHS)), strict=True
    ):
        for name, value in plain.items():
            torch.testing.assert_close(flat[name], value, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["plain", "flat"])
@pytest.mark.parametrize("epoch", range(1, EPOCHS))
def test_a_step_that_is_restored_in_any_epoch_ends_with_the_same_parameters(kind, epoch):
    whole, half = staged(kind), staged(kind)
    trained(half, range(epoch))
    half.begin(epoch)
    half.advance(3, Tally(1))
    resumed = staged(kind)
    resumed.parts.network.load_state_dict(half.parts.network.state_dict())
    resumed.load_state(half.state())
    last = trained(resumed, range(epoch, EPOCHS), first=3)[-1]
    for name, value in trained(whole, range(EPOCHS))[-1].items():
        assert torch.equal(last[name], value), name


def test_the_rate_of_a_phase_begins_with_it():
    whole = phases_of(Workload(network="own:make", lr=0.2, schedule="constant", epochs=8), Stacked())[2]
    assert whole.rule == Rule("sgd", 0.1, schedule="cosine", epochs=(4, None))
    rates = [rate_at(whole.rule, epoch, 0, 10, 8) for epoch in (4, 6)]
    assert rates == pytest.approx([0.1, 0.05])


def test_phases_that_follow_each_other_may_share_parameters_and_phases_of_the_same_epochs_may_not():
    phases = phases_of(Workload(epochs=EPOCHS), Stacked())
    assert not share_a_parameter(phases) and stages_of(phases, EPOCHS) == (3, 5) and stages_of(phases, 4) == (3,)
    assert share_a_parameter([phases[0], LossPhase(Stacked(), Workload()), phases_of(Workload(), phases[0].network)[0]])


def test_an_epoch_without_a_phase_is_refused():
    class Late(Stacked):
        def criteria(self) -> list[Criterion]:
            return super().criteria()[1:]

    with pytest.raises(WorkloadError, match="no phase of late:make is trained in epoch 1"):
        phases_of(Workload(network="late:make"), Late())


def test_the_loss_and_the_metric_are_the_network_s_unless_the_workload_names_others():
    network, workload = Reconstructing(), Workload(loss="model")
    batch = torch.randn(5, 6), torch.zeros(5, dtype=torch.int64)
    (phase,) = phases_of(workload, network)
    loss, output = phase.forward(batch)
    torch.testing.assert_close(loss, F.mse_loss(network(batch[0]), batch[0]))
    assert output is None and metric_name(workload, network) == "largest error"
    metric = find_metric(workload, network)
    metric.add(batch, None)
    assert metric.read() == pytest.approx(float((network(batch[0]) - batch[0]).abs().amax(1).mean()))
    squared = phases_of(Workload(loss="squared"), network)[0]
    assert type(squared) is LossPhase
    assert metric_name(Workload(metric="torch:dist"), network) == "dist"
    assert metric_name(workload, nn.Linear(2, 2)) == "" and find_metric(workload, nn.Linear(2, 2)) is None


def test_micro_batches_give_the_gradient_of_the_batch():
    network = Reconstructing()
    batch = torch.randn(8, 6), torch.zeros(8, dtype=torch.int64)
    whole, parts = (
        phases_of(Workload(batch=8, accumulate=n), network)[0].gradient(batch, torch.Generator()) for n in (1, 4)
    )
    torch.testing.assert_close(parts.loss, whole.loss)
    for one, other in zip(parts.gradients, whole.gradients, strict=True):
        torch.testing.assert_close(one, other)
    assert math.isfinite(float(whole.loss)) and whole.output is None
