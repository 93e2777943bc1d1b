"""The clock in a custom training loop: what it measures, that it leaves nothing behind, and its errors."""

from __future__ import annotations

import warnings
from collections import UserDict
from time import perf_counter

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline.errors import InputError, PacelineError
from paceline.measurement import layer_clock
from paceline.measurement.layer_clock import LayerClock
from paceline.measurement.mark_log import OUTSIDE
from tests.measurement.slow_layers import SlowLayer, assert_none_of_it_is_booked, hooks_of, iterations, slept_s

BACKWARD, GRAD = torch.autograd.backward, torch.autograd.grad


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))


def untouched(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    return (
        hooks_of(model) == 0
        and torch.autograd.backward is BACKWARD
        and torch.autograd.grad is GRAD
        and not _global_optimizer_post_hooks
    )


@pytest.fixture
def model() -> nn.Sequential:
    return small()


@pytest.fixture
def optimizer(model) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def train(clock: LayerClock, batches: int = 9) -> None:
    for x in iterations(clock, batches):
        clock.optimizers[0].zero_grad()
        clock.model(x).sum().backward()
        clock.optimizers[0].step()


def test_a_loop_in_three_lines(model, optimizer):
    with paceline.LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        train(clock)
    measured = clock.measurement("mine")
    assert isinstance(measured, paceline.Measurement)
    assert (measured.name, measured.batch, measured.iterations, measured.sampled) == ("mine", 3, 9, 4)
    assert "only 4 iterations were sampled" in " ".join(measured.warnings)
    assert [layer.name for layer in measured.layers if layer.parameters] == ["0", "2"]
    assert {"0", "1", "2", "Sequential", OUTSIDE} == {layer.name for layer in measured.layers}
    assert sum(measured.parts_s.values()) == pytest.approx(measured.iteration_s.mean_s)
    for part in ("forward", "backward", "update"):
        assert measured.parts_s[part] > 0.0
    assert measured.parts_s["load"] > -1e-5  # of a list: less than what a mark may cost on a busy machine
    assert measured.trace.spans and measured.overhead > -1.0


@pytest.mark.serial
def test_a_sleeping_layer_has_its_time_and_the_others_do_not():
    model = nn.Sequential(nn.Linear(4, 4), SlowLayer(0.005, 0.010), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        train(clock, 15)
    measured = clock.measurement()
    layers = {layer.name: layer for layer in measured.layers}
    forward, backward = (model[1].slept[part] / 15 for part in ("forward", "backward"))
    assert 0.005 <= layers["1"].forward_s.median_s <= 1.2 * forward
    assert 0.010 <= layers["1"].backward_s.median_s <= 1.2 * backward
    assert sum(x.forward_s.mean_s for x in measured.layers) == pytest.approx(measured.parts_s["forward"])
    assert sum(x.backward_s.mean_s for x in measured.layers) == pytest.approx(measured.parts_s["backward"])
    assert sum(x.update_s.mean_s for x in measured.layers) == pytest.approx(measured.parts_s["update"])
    assert sum(row["total_s"] for row in measured.table()) == pytest.approx(measured.iteration_s.mean_s)
    for name in ("0", "2", "Sequential", OUTSIDE):
        assert layers[name].forward_s.median_s + layers[name].backward_s.median_s < 0.002


def test_a_module_called_twice_counts_two_calls():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        train(clock)
    layers = {layer.name: layer for layer in clock.measurement().layers}
    assert (layers["0"].calls, layers["1"].calls) == (2, 1) and "2" not in layers


def test_loading_is_a_part_and_starting_the_loader_is_not(model, optimizer):
    slept = []

    class Slow:
        def __iter__(self):
            slept_s(0.1)
            for _ in range(9):
                slept.append(slept_s(0.005))
                yield torch.randn(3, 4)

    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        for x in clock.batches(Slow()):
            model(x).sum().backward()
            clock.step()
    measured = clock.measurement()
    assert 0.0045 <= measured.parts_s["load"] < 0.05
    assert measured.epoch_start_s >= 0.1


def test_a_loader_with_workers(model, optimizer):
    data = DataLoader(TensorDataset(torch.randn(24, 4), torch.zeros(24)), batch_size=4, num_workers=2)
    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        for x, _ in clock.batches(data):
            model(x).sum().backward()
            clock.step()
    measured = clock.measurement()
    assert (measured.batch, measured.iterations) == (4, 6)
    assert measured.parts_s["load"] > 0.0


def test_time_between_epochs_belongs_to_no_iteration(model, optimizer):
    between_s = 0.0
    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        train(clock, 4)
        start_s, since = perf_counter(), clock.session.number
        for _ in range(4):
            train(clock, 4)
            assert hooks_of(model) == 1 and torch.autograd.backward is BACKWARD
            model(torch.randn(3, 4))
            between_s += slept_s(0.05)
        elapsed_s = perf_counter() - start_s
    assert clock.session.number == 20
    assert_none_of_it_is_booked(clock, between_s, elapsed_s, since)
    assert sum(s.wall_s for s in clock.session.samples if s.number >= since) + between_s <= elapsed_s


def test_a_forward_pass_before_the_loop_is_not_counted(model, optimizer):
    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        model(torch.randn(3, 4))
        train(clock)
    assert {layer.calls for layer in clock.measurement().layers if layer.parameters} == {1}


def test_untouched_iterations_have_one_hook_and_none_are_left_afterwards(model, optimizer):
    """The one is a pre-hook on the whole model, which notices evaluations."""
    seen = []
    with LayerClock(model, optimizer, every=3, warm_up=1) as clock:
        for x in iterations(clock, 12):
            seen.append((clock.session.number, hooks_of(model), torch.autograd.backward is BACKWARD))
            model(x).sum().backward()
    sampled = {sample.number for sample in clock.session.samples}
    assert len(sampled) == 4
    assert [n for n, hooks, plain in seen[1:] if hooks > 1 or not plain] == sorted(sampled)
    assert untouched(model, optimizer)


def test_a_sampled_iteration_that_raises_leaves_nothing_behind(model, optimizer):
    forward = model[1].forward
    with pytest.raises(ZeroDivisionError), LayerClock(model, optimizer, every=2, warm_up=1) as clock:

        def wrong(x):
            if clock.session.log is not None:
                assert not untouched(model, optimizer)
                return 1 / 0
            return forward(x)

        model[1].forward = wrong
        train(clock)
    assert untouched(model, optimizer)


def test_a_loop_that_catches_an_error_continues(model, optimizer):
    fail, forward = [3, 4, 5], model[1].forward
    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:

        def sometimes(x):
            if clock.session.number in fail:
                raise RuntimeError("skip this batch")
            return forward(x)

        model[1].forward = sometimes
        for x in iterations(clock, 12):
            try:
                model(x).sum().backward()
            except RuntimeError:
                continue
            finally:
                optimizer.step()
    assert {"0", "1", "2", "Sequential", OUTSIDE} == {layer.name for layer in clock.measurement().layers}
    assert untouched(model, optimizer)


def test_a_backward_pass_that_raises_leaves_nothing_behind(model, optimizer):
    with pytest.raises(RuntimeError), LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        for x in iterations(clock, 4):
            loss = model(x).sum()
            loss.backward()
            if clock.session.number == 2:
                loss.backward()
    assert untouched(model, optimizer)


def test_a_scheduler_does_not_complain_about_the_marks(model, optimizer):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    step = optimizer.step
    with warnings.catch_warnings(), LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        warnings.simplefilter("error")
        for x in iterations(clock, 4):
            model(x).sum().backward()
            optimizer.step()
            if clock.session.number:
                scheduler.step()
    assert optimizer.step == step


def test_two_clocks_at_once(model, optimizer):
    other = small()
    with LayerClock(model, optimizer, every=2, warm_up=1) as first, LayerClock(other, every=2, warm_up=1) as second:
        for x in iterations(first, 9):
            other(model(x)).sum().backward()
            optimizer.step()
            second.step()
    assert untouched(model, optimizer) and hooks_of(other) == 0
    for clock in (first, second):
        layers = {layer.name: layer for layer in clock.measurement().layers}
        assert layers["0"].backward_s.median_s > 0.0


def test_a_clock_made_where_gradients_are_off(model, optimizer):
    with torch.no_grad():
        clock = LayerClock(model, optimizer, every=2, warm_up=1)
    with clock:
        train(clock)
    assert clock.measurement().parts_s["backward"] > 0.0


@pytest.mark.parametrize(
    ("batch", "length"),
    [
        (torch.zeros(5, 2), 5),
        ((torch.zeros(5, 2), torch.zeros(5)), 5),
        ({"x": torch.zeros(5, 2)}, 5),
        (UserDict(x=torch.zeros(5, 2)), 5),
        ([["a", "bcd"], torch.zeros(2)], 2),
        (torch.tensor(3.0), 0),
        (None, 0),
    ],
)
def test_the_length_of_a_batch(batch, length):
    assert layer_clock._length(batch) == length


def test_no_backward_pass_in_the_block(model, optimizer):
    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        for x in iterations(clock, 9):
            model(x)
    with pytest.raises(InputError, match=r"no backward pass was seen: call loss.backward\(\)"):
        clock.measurement()


def test_a_loop_without_updates_batches_and_steps(model, optimizer):
    with LayerClock(model, optimizer) as clock:
        model(torch.randn(3, 4)).sum().backward()
    with pytest.raises(InputError, match=r"nothing was measured: .* take batches from clock.batches\(loader\)"):
        clock.measurement()


def test_a_step_after_the_block(model, optimizer):
    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        train(clock)
    with pytest.raises(InputError, match="outside the clock"):
        clock.step()
    assert untouched(model, optimizer)


def test_too_few_iterations(model, optimizer):
    with LayerClock(model, optimizer, every=20, warm_up=5) as clock:
        train(clock, 5)
    with pytest.raises(
        PacelineError, match="no iteration was sampled: 5 iterations are too few, the first 5 are warm-up"
    ):
        clock.measurement()


@pytest.mark.parametrize("wrong", [{"every": 0}, {"every": -3}, {"warm_up": -1}])
def test_invalid_settings_are_rejected(model, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(InputError, match=f"{name}={value}"):
        LayerClock(model, **wrong)


def test_a_model_that_is_not_on_the_cpu():
    with pytest.raises(PacelineError, match="meta"):
        LayerClock(nn.Linear(4, 4, device="meta"))


def test_a_model_that_is_moved(model, optimizer):
    wrong = pytest.raises(InputError, match="moved from cpu to meta")
    with wrong, LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        for x in iterations(clock, 6):
            model(x.to(next(model.parameters()).device)).sum().backward()
            if clock.session.number == 2:
                model.to("meta")
    assert clock.session.number >= 3 and untouched(model, optimizer)


def test_a_model_without_parameters():
    model, x = nn.ReLU(), torch.randn(4, requires_grad=True)
    with LayerClock(model, every=2, warm_up=1) as clock:
        for _ in range(9):
            model(x).sum().backward()
            clock.step()
    measured = clock.measurement()
    assert {"ReLU", OUTSIDE} == {layer.name for layer in measured.layers}
