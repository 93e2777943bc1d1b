"""Denormal numbers are zero while a CPU trains, in every thread that computes; parameters are the same as with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from paceline.step.denormals import are_flushed, denormals_flushed, flush_denormals
from paceline.step.optimizers import Rule, initial_state, update
from paceline.step.placement import cpu_settings_restored
from paceline.workload import Workload

MANY = 1 << 20
"""Elements of which each thread computes a part."""


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.zeros(MANY).add_(1.0)  # so that the threads are there already
    yield
    torch.set_num_threads(before)


def denormals() -> Tensor:
    """Made by a multiplication, which is what a processor flushes."""
    return torch.full((MANY,), torch.finfo(torch.float32).tiny) * 0.5


def test_they_are_zero_in_all_threads_and_afterwards_no_longer() -> None:
    assert denormals().all()
    with denormals_flushed():
        assert are_flushed()
        assert not denormals().any()
        found: list[Tensor] = []
        beside = threading.Thread(target=lambda: found.append(denormals()))
        beside.start()
        beside.join()
        assert not found[0].any()
    assert not are_flushed()
    assert denormals().all()


def test_a_caller_who_has_set_it_keeps_it() -> None:
    flush_denormals()
    try:
        with cpu_settings_restored():
            assert are_flushed()
        assert are_flushed()
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_parameters_are_the_same_bits(optimizer: str) -> None:
    """Of units that die after their first updates, whose means of gradients fade away."""

    def trained() -> tuple[Tensor, dict[str, Tensor]]:
        rule = Rule.of(Workload("mlp", optimizer=optimizer, lr=0.01))
        generator = torch.Generator().manual_seed(0)
        parameters = torch.randn(500, generator=generator)
        state, rate = initial_state(rule, parameters), torch.tensor(rule.lr)
        for number in range(1200):
            gradient = torch.randn(500, generator=generator)
            gradient[:300] *= number < 3
            update(rule, parameters, gradient, state, rate)
        return parameters, state

    with_them, kept = trained()
    with denormals_flushed():
        without, flushed = trained()
    smallest = torch.finfo(torch.float32).tiny
    fading = [t[:300].abs() for t in kept.values() if t.dim()]
    assert any(bool(((t > 0) & (t < smallest)).any()) for t in fading), "nothing was to be flushed"
    assert not any(bool(((t.abs() > 0) & (t.abs() < smallest)).any()) for t in flushed.values() if t.dim())
    assert torch.equal(with_them, without)
