"""The user's own optimizer, scheduler and metric, and gradient accumulation, against loops written by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from paceline.errors import WorkloadError
from paceline.step.build import assemble, load_data
from paceline.step.make import make_step
from paceline.training.step_choice import choose_step
from paceline.training.trainer import resume, run
from paceline.training.virtual_run import run_virtual
from paceline.workload import Workload, resolve
from tests.step import user_objects as mine
from tests.step.test_user_data import CPU, HERE, TRAIN, assembled, paceline_losses, same


def workload_of(**settings: Any) -> Workload:
    given = {
        "network": ":classifier",
        "data": ":pair_of_tensor_datasets",
        "batch": 8,
        "epochs": 2,
        "lr": 0.1,
        **settings,
    }
    own = {key: f"{HERE}{value}" for key, value in given.items() if isinstance(value, str) and value[0] == ":"}
    return Workload(**{"device": "cpu", "threads": 1, **given, **own})


def hand_written(workload: Workload, make, schedule=None, micro: int | None = None):
    parts = assembled(workload)
    network, order = parts.network, parts.feeder.order
    made = make(dict(network.named_parameters()))
    optimizer, scheduler = made if isinstance(made, tuple) else (made, None)
    if schedule is not None:
        scheduler = schedule(optimizer)
    losses = []
    for epoch in range(workload.epochs):
        batches = [indices.tolist() for indices in order.epoch(epoch)]
        for x, y in DataLoader(TRAIN, batch_sampler=batches):
            optimizer.zero_grad()
            total, size = 0.0, micro or len(x)
            for xs, ys in zip(x.split(size), y.split(size), strict=True):
                loss = F.cross_entropy(network(xs), ys) / (len(x) / len(xs))
                loss.backward()
                total += loss.item()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            losses.append(total)
    return losses, torch.cat([p.detach().flatten() for p in network.parameters()])


def test_a_class_of_torch_optim_is_given_the_rate():
    workload = workload_of(optimizer="torch.optim:RAdam", lr=0.03)
    same(paceline_losses(workload), hand_written(workload, lambda named: torch.optim.RAdam(named.values(), lr=0.03)))
    step, choice = choose_step(assembled(workload), "auto")
    assert (step.kind, choice.reason) == ("plain", "optimizer torch.optim:RAdam is the user's own")


def test_parameter_groups_keep_their_rates():
    workload = workload_of(optimizer=":groups")
    same(paceline_losses(workload), hand_written(workload, mine.groups))


def test_the_workloads_schedule_scales_every_group():
    workload = workload_of(optimizer=":groups", schedule="step:1:0.5", lr=0.7)
    parts = assembled(workload)
    step, _ = choose_step(parts, "auto")
    for epoch, factor in ((0, 1.0), (1, 0.5)):
        step.begin(epoch)
        step.take(next(parts.feeder.batches(epoch)))
        (own,) = step.optimizers
        assert [group["lr"] for group in own.optimizer.param_groups] == pytest.approx([0.02 * factor, 0.05 * factor])


def test_a_scheduler_that_comes_with_the_optimizer_is_stepped_after_every_update():
    workload = workload_of(optimizer=":groups_and_scheduler")
    same(paceline_losses(workload), hand_written(workload, mine.groups_and_scheduler))


@pytest.mark.parametrize("kind", ["plain", "auto"])
def test_a_scheduler_sets_the_rate_of_a_built_in_optimizer(kind: str):
    def sgd(named):
        return torch.optim.SGD(named.values(), lr=0.1)

    falling = workload_of(schedule=":falling")
    found, expected = paceline_losses(falling, kind)[0], hand_written(falling, sgd, mine.falling)[0]
    assert found == pytest.approx(expected, rel=1e-5)
    cycle = workload_of(schedule=":one_cycle")
    expected = hand_written(cycle, sgd, lambda optimizer: mine.one_cycle(optimizer, 7, 2))[0]
    assert paceline_losses(cycle, kind)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("accumulate", [2, 3, 8])
def test_accumulation_gives_the_gradient_of_micro_batches(accumulate: int):
    workload = workload_of(accumulate=accumulate)
    micro = math.ceil(8 / accumulate)
    losses, parameters = hand_written(workload, lambda named: torch.optim.SGD(named.values(), lr=0.1), micro=micro)
    found = paceline_losses(workload)
    assert torch.equal(found[1], parameters) and found[0] == pytest.approx(losses, rel=1e-6)
    assert paceline_losses(workload, "flat")[0] == pytest.approx(losses, rel=1e-5)
    sizes = []
    parts = assembled(workload)
    parts.network.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    make_step(parts, "flat")[0].take(next(parts.feeder.batches(0)))
    assert sizes[-math.ceil(8 / micro) :] == [len(piece) for piece in torch.arange(8).split(micro)]


def test_a_run_with_them_resumes_exactly(tmp_path):
    workload = workload_of(optimizer=":groups_and_scheduler", epochs=1)
    whole = run(workload_of(optimizer=":groups_and_scheduler", epochs=3))
    run(workload, out=tmp_path / "run")
    continued = resume(tmp_path / "run", changes={"epochs": 3})
    assert continued.test_loss == whole.test_loss


def test_workers_share_the_users_optimizer_at_the_server():
    for settings in ({"optimizer": ":groups"}, {"optimizer": ":groups_and_scheduler"}, {"schedule": ":falling"}):
        workload = workload_of(accumulate=2, **settings)
        alone, virtual = run(workload), run_virtual(workload, "sync", workers=1)
        assert virtual.test_loss == pytest.approx(alone.test_loss, rel=1e-5)


@pytest.mark.parametrize("optimizer", [":groups", ":groups_and_scheduler"])
def test_every_worker_may_have_the_users_optimizer(optimizer):
    """One worker that is averaged with nobody trains as one process does."""
    workload = workload_of(optimizer=optimizer)
    assert run_virtual(workload, "local-sgd", workers=1).test_loss == pytest.approx(run(workload).test_loss, rel=1e-5)


def test_a_metric_is_computed_once_on_all_test_samples():
    workload = workload_of(metric=":share_of_first_class")
    done = run(workload)
    parts = assemble(workload, load_data(workload), CPU)
    assert 0 <= done.test_metric <= 1 and done.test_metric == done.epochs[-1].test_metric
    assert done.test_metric == run_virtual(workload, "sync", workers=1).test_metric
    assert math.isnan(run(workload_of()).test_metric) and parts.workload.metric
    with pytest.raises(WorkloadError, match=r"metric .*failing_metric failed: KeyError"):
        run(workload_of(metric=":failing_metric"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": ":some_parameters"}, "does not hold every parameter of the network once"),
        ({"optimizer": ":no_optimizer"}, "is a str, not an optimizer of torch.optim"),
        ({"optimizer": ":of_one"}, "failed: AttributeError"),
        ({"optimizer": ":groups", "l2": 0.1}, "l2 is for built-in optimizers"),
        ({"schedule": ":cycles_momentum"}, "changes the momentum too"),
        ({"schedule": ":on_plateau"}, "returned a ReduceLROnPlateau"),
        ({"accumulate": 9}, "accumulate=9 should be at most the batch, 8"),
        ({"optimizer": "adm"}, "did you mean adam|adam"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(settings: dict[str, Any], said: str):
    with pytest.raises(WorkloadError, match=said) as raised:
        paceline_losses(workload_of(**settings), "auto")
    assert "\n" not in str(raised.value)


def test_a_built_in_networks_weight_decay_is_not_that_of_the_users_optimizer():
    assert resolve("dnn", {"optimizer": "torch.optim:RAdam"}).l2 == 0
