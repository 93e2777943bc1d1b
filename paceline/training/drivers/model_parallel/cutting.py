"""Where a network is cut into stages: as asked, or so that all take about equally long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from paceline.cost.partition import Cut, balanced_cut, stage_sums
from paceline.cost.piece_times import PieceTime, piece_times
from paceline.cost.predicting import predict
from paceline.errors import NetworkError, PacelineError, StrategyError
from paceline.formatting import percent
from paceline.step.pieces import Piece
from paceline.step.placement import cpu_settings_restored
from paceline.workload import Workload

ROUNDS = 5
"""Passes that are timed where nothing is predicted."""


@dataclass(frozen=True)
class ChosenCut:
    firsts: Cut
    """The number of each stage's first piece."""
    why: str


def choose_cut(workload: Workload, pieces: Sequence[Piece], stages: int, asked: str, microbatch: Tensor) -> ChosenCut:
    """`microbatch` is one to time layers with where their times are not predicted."""
    if stages == 1 and not asked:
        return ChosenCut((0,), "not cut")
    if len(pieces) < stages:
        raise NetworkError(f"{workload.network} has {len(pieces)} layers, too few for `pipeline={stages}`")
    wanted = _asked(pieces, stages, asked) if asked else None
    times, how = _times(workload, pieces, microbatch)
    costs = [time.pass_s for time in times]
    cut = wanted or balanced_cut(costs, stages)
    shares = " / ".join(percent(share / sum(costs), 0) for share in stage_sums(costs, cut))
    why = f"{'as asked, ' * bool(wanted)}{how}: {shares} of a pass"
    return ChosenCut(cut, why)


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


def _times(workload: Workload, pieces: Sequence[Piece], microbatch: Tensor) -> tuple[list[PieceTime], str]:
    try:
        one = replace(workload, batch=len(microbatch), device="cpu")
        return piece_times(predict(one, step="plain"), [piece.names for piece in pieces]), "predicted"
    except PacelineError:  # this machine is not calibrated, or the network cannot be predicted
        return measured_times(pieces, microbatch, workload.threads), "measured"


def measured_times(pieces: Sequence[Piece], microbatch: Tensor, threads: int = 0) -> list[PieceTime]:
    """Seconds of a forward and a backward pass of each piece; parameters, buffers and random numbers stay the same."""
    with torch.random.fork_rng(devices=[]), cpu_settings_restored():
        if threads:
            torch.set_num_threads(threads)
        before = [(buffer, buffer.clone()) for piece in pieces for buffer in piece.buffers()]
        rounds = [_one_round(pieces, microbatch) for _ in range(ROUNDS)]
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
    return [
        PieceTime(median(time.forward_s for time in each), median(time.backward_s for time in each))
        for each in zip(*rounds[1:], strict=True)
    ]


def _one_round(pieces: Sequence[Piece], value: Tensor) -> list[PieceTime]:
    seconds = []
    for piece in pieces:
        inputs = value.clone()
        if inputs.is_floating_point():
            inputs = inputs.requires_grad_() * 1  # a layer that works in place may not change a leaf
        began_s = perf_counter()
        output = piece(inputs)
        between_s = perf_counter()
        trained = [p for p in piece.parameters() if p.requires_grad]
        wanted = [*trained, *([inputs] if inputs.requires_grad else [])]
        if output.requires_grad and wanted:
            torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)
        seconds.append(PieceTime(between_s - began_s, perf_counter() - between_s))
        value = output.detach()
    return seconds
