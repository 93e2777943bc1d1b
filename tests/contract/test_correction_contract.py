"""The promises of a correction hold for ours, and a user's own that breaks one is told which."""

from __future__ import annotations

import pytest
import torch

from paceline.simulate.contract import check_correction


@pytest.mark.parametrize("correction", ["constant:0.04", "adaptive:2", "staleness"])
def test_ours_keep_them(correction):
    assert [p for p in check_correction(correction) if not p.kept] == []


def clipped(gradient, parameters, backup, staleness, state):
    return gradient * min(1.0, 1.0 / float(gradient.norm() + 1e-12)) / max(1, staleness)


def changes_parameters(gradient, parameters, backup, staleness, state):
    parameters.mul_(0.9)
    return gradient


def draws(gradient, parameters, backup, staleness, state):
    return gradient + 1e-3 * torch.randn_like(gradient)


_seen: list[float] = []


def remembers(gradient, parameters, backup, staleness, state):
    _seen.append(float(gradient.norm()))
    return gradient / len(_seen)


def explodes(gradient, parameters, backup, staleness, state):
    return gradient / (staleness - 2)


def test_one_of_the_user_s_own_can_be_checked():
    assert all(p.kept for p in check_correction(clipped))


@pytest.mark.parametrize(
    ("function", "promise"),
    [
        (changes_parameters, "leaves parameters"),
        (draws, "gives the same"),
        (remembers, "keeps what it needs"),
        (explodes, "returns numbers"),
    ],
)
def test_a_broken_promise_is_named(function, promise):
    broken = [p for p in check_correction(function) if not p.kept]
    assert any(p.what.startswith(promise) and p.broken for p in broken)
