"""The promises of a correction hold for the built-in ones, and a custom one that breaks one is told which."""

from __future__ import annotations

import pytest
import torch

from paceline.testing.contract import check_correction


@pytest.mark.parametrize("correction", ["constant:0.04", "adaptive:2", "staleness"])
def test_the_built_in_ones_keep_them(correction):
    assert [p for p in check_correction(correction) if not p.kept] == []


def clipped(gradient, late):
    return gradient * min(1.0, 1.0 / float(gradient.norm() + 1e-12)) / max(1, late.staleness)


def changes_parameters(gradient, late):
    late.parameters.mul_(0.9)
    return gradient


def draws(gradient, late):
    return gradient + 1e-3 * torch.randn_like(gradient)


_seen: list[float] = []


def remembers(gradient, late):
    _seen.append(float(gradient.norm()))
    return gradient / len(_seen)


def explodes(gradient, late):
    return gradient / (late.staleness - 2)


def test_a_custom_one_can_be_checked():
    assert all(p.kept for p in check_correction(clipped))


@pytest.mark.parametrize(
    ("function", "promise"),
    [
        (changes_parameters, "leaves the parameters"),
        (draws, "gives the same"),
        (remembers, "keeps what it needs"),
        (explodes, "returns finite numbers"),
    ],
)
def test_a_broken_promise_is_named(function, promise):
    broken = [p for p in check_correction(function) if not p.kept]
    assert any(p.what.startswith(promise) and p.broken for p in broken)
