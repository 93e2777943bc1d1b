"""The clock in loops as people write them: accumulation, clipping, scaling, evaluation, `break` and `continue`."""

from __future__ import annotations

from time import perf_counter

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from paceline.measurement.layer_clock import LayerClock
from tests.measurement.slow_layers import SlowLayer, assert_none_of_it_is_booked, hooks_of, slept_s

SCALER_STEP = GradScaler.step
SLEEP_S = 0.004
ACCUMULATED = 4


class SlowSGD(torch.optim.SGD):
    longest_s = 0.0

    @torch.no_grad()
    def step(self, closure=None):
        self.longest_s = max(self.longest_s, slept_s(SLEEP_S))
        return super().step(closure)


class SlowRows(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        slept_s(SLEEP_S / 3)
        return torch.randn(4)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def clock_for(model: nn.Module, **settings) -> LayerClock:
    return LayerClock(model, **{"every": 2, "warm_up": 1, **settings})


def adds_up(measured) -> None:
    assert sum(measured.parts_s.values()) == pytest.approx(measured.iteration_s.mean_s)
    named = sum(seconds for part, seconds in measured.parts_s.items() if part != "unattributed")
    assert measured.accounted == pytest.approx(named / measured.iteration_s.mean_s)


@pytest.mark.parametrize("steps", ["per micro-batch", "per update", "none", "no batches either"])
def test_an_iteration_ends_with_an_update_however_accumulation_is_written(steps):
    model = small()
    optimizer = SlowSGD(model.parameters(), lr=0.1)
    data = torch.randn(12 * ACCUMULATED, 3, 4)
    with clock_for(model) as clock:
        for number, x in enumerate(data if steps == "no batches either" else clock.batches(data)):
            (model(x).sum() / ACCUMULATED).backward()
            if (number + 1) % ACCUMULATED == 0:
                optimizer.step()
                optimizer.zero_grad()
                if steps == "per update":
                    clock.step()
            if steps == "per micro-batch":
                clock.step()
    measured = clock.measurement()
    assert measured.iterations in (11, 12)  # the first micro-batches do not show yet that they accumulate
    assert SLEEP_S <= measured.part_medians_s["update"] < 2 * optimizer.longest_s
    assert measured.parts_s["update"] >= SLEEP_S
    assert {layer.calls for layer in measured.layers if layer.parameters} == {ACCUMULATED}
    assert measured.batch == (0 if steps == "no batches either" else 3 * ACCUMULATED)
    adds_up(measured)


def test_break_and_continue():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with clock_for(model) as clock:
        for _ in range(3):
            for number, x in enumerate(clock.batches(torch.randn(20, 3, 4))):
                if number % 5 == 2:
                    continue
                model(x).sum().backward()
                optimizer.step()
                if number == 9:
                    break
    assert clock.session.number == 3 * 8 and not clock.session.timing
    adds_up(clock.measurement())
    assert hooks_of(model) == 0


def test_several_optimizers():
    model = small()
    first, last = (torch.optim.SGD(model[place].parameters(), lr=0.1) for place in (0, 2))
    with clock_for(model) as clock:
        for x in torch.randn(12, 3, 4):
            model(x).sum().backward()
            first.step()
            last.step()
    assert clock.session.number in (12, 13)  # at first there seems to be only one
    with clock_for(model, optimizer=[first, last]) as clock:
        for x in torch.randn(12, 3, 4):
            model(x).sum().backward()
            first.step()
            last.step()
    assert clock.session.number == 12


def test_an_optimizer_of_another_model_ends_no_iteration():
    model, other = small(), small()
    optimizer, others = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other))
    with clock_for(model) as clock:
        for x in torch.randn(10, 3, 4):
            other(model(x)).sum().backward()
            others.step()
            optimizer.step()
    assert clock.session.number == 10


@pytest.mark.parametrize("clip", [clip_grad_norm_, clip_grad_value_])
def test_clipping_and_scaling_are_parts(clip):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cpu")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    with clock_for(model) as clock:
        for x in clock.batches(torch.randn(15, 3, 4)):
            optimizer.zero_grad()
            scaler.scale(model(x).sum()).backward()
            scaler.unscale_(optimizer)
            clip(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
    measured = clock.measurement()
    for part in ("scale", "clip", "update", "forward", "backward", "loop"):
        assert measured.parts_s[part] > 0.0, part
    adds_up(measured)
    assert GradScaler.step is SCALER_STEP and clip.__closure__[0].cell_contents.__module__ == clip.__module__


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_evaluation_in_the_loop_is_not_booked_as_training(mode):
    model = nn.Sequential(nn.Linear(4, 4), SlowLayer(SLEEP_S, 0.0), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    evaluated_s = 0.0
    with clock_for(model) as clock:
        start_s = perf_counter()
        for number, x in enumerate(clock.batches(torch.randn(14, 3, 4))):
            if number % 3 == 0:  # the first iteration records the shapes
                before_s = model[1].slept["forward"]
                with mode():
                    model(torch.randn(50, 4))
                    for _ in range(4):
                        evaluated_s += slept_s(0.002)
                        model(torch.randn(50, 4))
                evaluated_s += model[1].slept["forward"] - before_s
            model(x).sum().backward()
            optimizer.step()
        elapsed_s = perf_counter() - start_s
    assert_none_of_it_is_booked(clock, evaluated_s, elapsed_s)
    measured = clock.measurement()
    layers = {layer.name: layer for layer in measured.layers}
    assert layers["1"].calls == 1 and layers["0"].flops == 2 * 3 * 4 * 4
    assert layers["1"].forward_s.median_s < 2 * model[1].longest_s
    assert measured.part_medians_s["forward"] < 2 * model[1].longest_s and measured.part_medians_s["loop"] < 0.004
    assert measured.validation_s > SLEEP_S and "validate" not in measured.parts_s
    adds_up(measured)


def test_an_evaluation_between_epochs_without_batches_is_not_booked_as_training():
    model, evaluated_s = nn.Sequential(nn.Linear(4, 4), SlowLayer(0.001, 0.0)), 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with clock_for(model) as clock:
        start_s = perf_counter()
        for _ in range(4):
            for x in torch.randn(4, 3, 4):
                model(x).sum().backward()
                optimizer.step()
            before_s = model[1].slept["forward"]
            with torch.no_grad():
                for _ in range(30):
                    model(torch.randn(50, 4))
            evaluated_s += model[1].slept["forward"] - before_s
        elapsed_s = perf_counter() - start_s
    assert_none_of_it_is_booked(clock, evaluated_s, elapsed_s)


def test_loading_without_batches_is_not_booked_as_forward():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with clock_for(model) as clock:
        for x in DataLoader(SlowRows(), batch_size=3):
            model(x).sum().backward()
            optimizer.step()
    measured = clock.measurement()
    assert measured.parts_s["load"] >= SLEEP_S and measured.parts_s["forward"] < SLEEP_S
    with clock_for(model) as clock:
        for _ in range(15):
            slept_s(SLEEP_S)  # a custom loader
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
    measured = clock.measurement()
    assert measured.parts_s["loop"] >= SLEEP_S and measured.parts_s["forward"] < SLEEP_S


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_is_training_though_it_runs_without_gradients(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.block = nn.Linear(4, 4), SlowLayer(SLEEP_S, 0.0)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.block, self.first(x), use_reentrant=reentrant)

    model = Checkpointed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with clock_for(model) as clock:
        for x in clock.batches(torch.randn(9, 3, 4)):
            model(x).sum().backward()
            optimizer.step()
    measured = clock.measurement()
    assert measured.parts_s["forward"] >= SLEEP_S and measured.validation_s == 0.0
    assert {layer.name: layer.calls for layer in measured.layers}["block"] == 1


def test_an_optimizer_that_evaluates_the_loss_itself():
    model = small()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).square().sum()
        loss.backward()
        return loss

    with clock_for(model) as clock:
        for _ in clock.batches(range(9)):
            optimizer.step(closure)
    measured = clock.measurement()
    assert all(measured.parts_s[part] > 0.0 for part in ("forward", "backward", "update"))


def test_the_result_prints_short_and_says_what_to_distrust(tmp_path):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(200)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with clock_for(model) as clock:
        for x in clock.batches(torch.randn(7, 3, 4)):
            model(x).sum().backward()
            optimizer.step()
    measured = clock.measurement("many layers")
    assert len(repr(measured)) < 250
    assert len(str(measured)) < 10_000 and "smaller rows)" in str(measured)
    assert "warning: only 3 iterations were sampled" in str(measured)
    assert measured.overhead_s > 0.0 and "to a run of an hour" in str(measured)
    assert len(measured.to_pandas()) == len(measured.table()) > 200
    measured.save(tmp_path / "mine.json")
    assert measured.report(tmp_path / "page.html").stat().st_size > 10_000


def test_a_clock_is_made_in_well_under_a_second():
    model = small()
    clock_for(model)
    assert clock_for(model).session.overhead.prelude_s < 0.3
