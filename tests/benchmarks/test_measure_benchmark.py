"""`python -m benchmarks measure`: that it counts what it says it counts."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.clocked import DENSE, Clocked, with_clock
from benchmarks.measure import CASES, Case, chosen_cases, missed_bars
from benchmarks.options import Options
from benchmarks.other_clocks import other_clocks, synchronised_hooks
from benchmarks.step_loop import StepLoop
from paceline.errors import InputError
from paceline.step.build import assemble, load_data
from paceline.step.flat import FlatStep
from paceline.workload import resolve
from tests.reporting.examples import a_measurement

CPU = torch.device("cpu")
SMALL = resolve("lenet5", {"data": "digits:256", "batch": 32, "epochs": 500, "threads": 1, "device": "cpu"})


@pytest.fixture(scope="module")
def clocked():
    return with_clock(SMALL, CPU, pairs=2, quick=True)


@pytest.mark.slow
def test_blocks_with_the_clock_are_sampled_as_a_long_run_is(clocked):
    m = clocked.measurement
    assert 0.0 < clocked.sampled_share <= 0.5 and m.sampled >= 2
    assert len(clocked.overheads) == 2 and all(-0.9 < overhead < 5 for overhead in clocked.overheads)


def test_bars_are_judged_by_the_record():
    exact = a_measurement(accounted=1.0, sampled=20, parts_s={"forward": 1.0, "unattributed": 0.0})
    clocked = Clocked(exact, [], block=100, sampled_share=0.01, denser=1.0)
    assert missed_bars(replace(clocked, measurement=exact, overheads=[0.01] * 20)) == []
    assert missed_bars(replace(clocked, measurement=exact, overheads=[0.03] * 20)) == ["overhead +3.0%, above 2 %"]
    negative = replace(exact, parts_s={"forward": 1.0, "unattributed": -0.1 * exact.iteration_s.mean_s})
    (missed,) = missed_bars(replace(clocked, measurement=negative, overheads=[0.0] * 20))
    assert missed.startswith("unattributed -10.0%")


@pytest.mark.slow
def test_a_slow_network_is_looked_into_more_often_and_the_overhead_divided_by_it(monkeypatch):
    monkeypatch.setattr("benchmarks.clocked.LONG_PAIR_S", 0.0)
    clocked = with_clock(SMALL, CPU, 2, quick=True)
    assert clocked.denser == pytest.approx(2 / clocked.sampled_share / DENSE)


@pytest.mark.slow
def test_the_others_account_for_a_share_and_leave_no_hook():
    others = {other.name: other for other in other_clocks(SMALL, CPU, rounds=2)}
    for name in ("torch.profiler", "synchronised hooks"):
        assert not others[name].failure and len(others[name].overheads) == 2
        assert 0.1 < others[name].accounted < 3


@pytest.mark.serial
def test_hooks_book_what_a_layer_takes_and_in_place_operations_come_back():
    class Slow(nn.Module):
        def forward(self, x):
            time.sleep(0.02)
            return x * 1.0

    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), Slow())
    with synchronised_hooks(network, CPU) as booked:
        assert not network[1].inplace
        network(torch.randn(2, 4, requires_grad=True)).sum().backward()
    assert network[1].inplace and not network[0]._forward_hooks
    assert booked["forward", "2"] == pytest.approx(0.02, rel=0.5) and booked["backward", "0"] > 0


def test_a_loop_runs_as_many_whole_batches_as_asked():
    parts = assemble(SMALL, load_data(SMALL), CPU)
    loop, sizes = StepLoop(FlatStep(parts)), []
    take = loop.step.take
    loop.step.take = lambda batch: sizes.append(len(batch[1])) or take(batch)
    loop.run(19)
    assert sizes == [32] * 19


def test_networks_are_chosen_by_name_or_by_name_and_batch():
    def cases(*names: str, device: str = "cuda") -> list[Case]:
        return chosen_cases(Options(torch.device(device), None, False, names))

    assert cases() == list(CASES["cuda"]) and cases("alexnet") == [Case("alexnet", 64), Case("alexnet", 128)]
    assert cases("alexnet-128", "vgg11") == [Case("alexnet", 128), Case("vgg11", 12)]
    assert cases("mlp", device="cpu") == [Case("mlp", 100)]
    with pytest.raises(InputError, match="--networks mlp: one of alexnet-64"):
        cases("mlp")
