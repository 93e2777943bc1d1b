"""Probes next to a trial, and a clock that stops before memory is freed."""

from __future__ import annotations

import time

import pytest
import torch

from paceline.cost import timing
from paceline.cost.families import FAMILIES
from paceline.cost.timing import CACHED_ELEMENTS, CONVOLUTION, ELEMENTWISE, PRODUCT, Probe, Stopwatch, probe_of

CPU = torch.device("cpu")


def test_every_family_has_a_probe_that_drifts_like_it():
    assert {probe_of(family) for family in FAMILIES} == {PRODUCT, CONVOLUTION, ELEMENTWISE}
    assert probe_of("convolution_backward_weight") == CONVOLUTION
    assert probe_of("matmul") == probe_of("recurrent_backward") == probe_of("attention") == PRODUCT
    assert probe_of("batch_norm") == probe_of("add_") == ELEMENTWISE


@pytest.mark.serial
def test_the_second_of_two_probes_counts():
    probe = Probe(CPU)
    assert not any(probe.seen.values())
    calls = iter([lambda: time.sleep(0.05), lambda: None])
    probe.calls[PRODUCT] = lambda: next(calls)()
    assert probe.seconds(PRODUCT) < 0.03
    assert len(probe.seen[PRODUCT]) == 1 and set(probe.medians()) == {PRODUCT}


def test_a_trial_has_the_probe_of_its_family():
    watch = Stopwatch(CPU)
    timed = watch.time(lambda: time.sleep(0.002), CONVOLUTION)
    assert timed.seconds >= 0.002 and timed.probe_s > 0
    assert watch.probe.seen[CONVOLUTION] and not watch.probe.seen[PRODUCT]


class Slow:
    """Takes long to be freed."""

    def __del__(self) -> None:
        time.sleep(0.02)


@pytest.mark.serial
def test_freeing_the_result_is_not_timed():
    assert Stopwatch(CPU).time(lambda: (time.sleep(0.005), Slow())).seconds < 0.015


def test_the_caches_hold_other_data_and_what_was_just_written(monkeypatch):
    """Each call is preceded by a pass over more memory than two cores cache, then by one over its input."""
    monkeypatch.setattr(timing, "ROUND_S", 10.0)  # short, however busy the machine is
    watch, passes = Stopwatch(CPU), []
    fresh = torch.full((1000,), 2.0, requires_grad=True)
    output = (fresh * fresh).sum()  # saved for the gradient: autograd must not see it as changed

    class Passes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            if function is torch.ops.aten.mul_.Tensor:
                passes.append(arguments[0].numel())
            return function(*arguments, **(keywords or {}))

    with Passes():
        watch.time(
            lambda: passes.append("call") or torch.autograd.grad(output, [fresh], retain_graph=True), fresh=fresh
        )
    timed = passes[3:]  # the first three calls are not timed
    emptied = [timed[i : i + 3] for i, found in enumerate(timed) if found == CACHED_ELEMENTS]
    assert emptied and all(found == [CACHED_ELEMENTS, 1000, "call"] for found in emptied)
    assert timed.count("call") == 2 * len(emptied)  # as many with everything in the caches
    assert torch.equal(fresh.detach(), torch.full((1000,), 2.0)) and 4 * CACHED_ELEMENTS > 2 * (1 << 21)


def test_a_short_call_is_also_timed_with_everything_in_the_caches():
    watch, filled = Stopwatch(CPU), []
    fill = watch._fill_caches
    watch._fill_caches = lambda fresh: filled.append(True) or fill(fresh)  # type: ignore[method-assign]

    def slow_without_caches() -> None:
        if filled:
            time.sleep(0.004 if filled.pop() else 0.0)

    timed = watch.time(slow_without_caches)
    assert timed.seconds >= 0.004 > 0.001 > timed.cached_s > 0


def test_a_long_call_is_timed_once_and_takes_as_long():
    timed = Stopwatch(CPU).time(lambda: time.sleep(0.003))
    assert timed.cached_s == timed.seconds >= 0.003


def test_what_no_cache_holds_is_not_written_first():
    watch = Stopwatch(CPU)
    large = torch.zeros(CACHED_ELEMENTS)
    before = large._version
    watch.time(lambda: None, fresh=large)
    assert large._version == before
