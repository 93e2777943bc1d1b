"""Where a network is cut into stages: as asked, or so that all take about equally long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from paceline.cost.partition import Cut, balanced_cut, stage_sums
from paceline.cost.piece_times import piece_times
from paceline.cost.predicting import predict
from paceline.errors import NetworkError, PacelineError, StrategyError
from paceline.formatting import percent
from paceline.step.pieces import Piece
from paceline.workload import Workload

ROUNDS = 5
"""Passes that are timed where nothing is predicted."""


def choose_cut(
    workload: Workload, pieces: Sequence[Piece], stages: int, asked: str, microbatch: Tensor
) -> tuple[Cut, str]:
    """The first piece of each stage, and in words where that comes from; `microbatch` is one to time layers with."""
    if asked:
        return _asked(pieces, stages, asked), "as asked"
    if stages == 1:
        return (0,), "not cut"
    if len(pieces) < stages:
        raise NetworkError(f"{workload.network} has {len(pieces)} layers, too few for `pipeline={stages}`")
    costs, how = _costs(workload, pieces, microbatch)
    cut = balanced_cut(costs, stages)
    shares = " / ".join(percent(share / sum(costs), 0) for share in stage_sums(costs, cut))
    return cut, f"{how}: {shares} of a pass"


def _asked(pieces: Sequence[Piece], stages: int, asked: str) -> Cut:
    names = [name.strip() for name in asked.split(",")]
    if len(names) != stages - 1:
        raise StrategyError(
            f"cut={asked!r} has {len(names)} layers; {stages} stages need {stages - 1}, the first of each"
        )
    known = [piece.name for piece in pieces]
    cut = [0]
    for name in names:
        found = [number for number, one in enumerate(known) if one == name or one.startswith(f"{name}.")]
        if not found:
            raise StrategyError(f"cut={asked!r}: no stage can begin with {name!r}; these can: {', '.join(known[1:])}")
        cut.append(found[0])
    if sorted(set(cut)) != cut:
        raise StrategyError(f"cut={asked!r} should name layers in the order in which they run, after the first")
    return tuple(cut)


def _costs(workload: Workload, pieces: Sequence[Piece], microbatch: Tensor) -> tuple[list[float], str]:
    try:
        one = replace(workload, batch=len(microbatch), device="cpu")
        times = piece_times(predict(one), [piece.names for piece in pieces])
        return [time.pass_s for time in times], "predicted"
    except PacelineError:  # this machine is not calibrated, or the network cannot be predicted
        return measured_costs(pieces, microbatch), "measured"


def measured_costs(pieces: Sequence[Piece], microbatch: Tensor) -> list[float]:
    """Seconds of a forward and a backward pass of each piece; parameters, buffers and random numbers stay the same."""
    with torch.random.fork_rng(devices=[]):
        before = [(buffer, buffer.clone()) for piece in pieces for buffer in piece.buffers()]
        rounds = [_one_round(pieces, microbatch) for _ in range(ROUNDS)]
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
    return [median(each) for each in zip(*rounds[1:], strict=True)]


def _one_round(pieces: Sequence[Piece], value: Tensor) -> list[float]:
    seconds = []
    for piece in pieces:
        inputs = value.clone()
        if inputs.is_floating_point():
            inputs = inputs.requires_grad_() * 1  # a layer that works in place may not change a leaf
        began_s = perf_counter()
        output = piece(inputs)
        trained = [p for p in piece.parameters() if p.requires_grad]
        wanted = [*trained, *([inputs] if inputs.requires_grad else [])]
        if output.requires_grad and wanted:
            torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)
        seconds.append(perf_counter() - began_s)
        value = output.detach()
    return seconds
