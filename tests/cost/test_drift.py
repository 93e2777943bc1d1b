"""The slowdown of the machine beside a measured network, by the probes of its calibration."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch

import paceline.cost.drift as room
from paceline.cost.drift import DriftProbes, usual_probes_s
from paceline.cost.timing import CONVOLUTION, ELEMENTWISE, PRODUCT
from paceline.step.make import ChooseStep, make_step
from paceline.workload import Workload
from tests.cost.invented import calibration, layer, measurement

USUAL = {1: {PRODUCT: 1e-3, CONVOLUTION: 2e-3}, 2: {PRODUCT: 1e-3, CONVOLUTION: 2e-3}}


def test_usual_times_are_of_the_trials_that_have_all_probes():
    sets = [replace(each, probes_s={ELEMENTWISE: 1e-4 * each.threads}) for each in calibration().sets]
    images = [replace(each, probes_s={}, memory_format="channels_last") for each in sets]
    assert usual_probes_s([*sets, *images]) == {1: {ELEMENTWISE: 1e-4}, 2: {ELEMENTWISE: 2e-4}}


@pytest.mark.parametrize("threads", ["1", "2"])
def test_the_drift_is_the_mean_of_before_and_after_with_the_threads_of_the_network(threads, monkeypatch):
    probes, used = DriftProbes(torch.device("cpu"), USUAL), []
    times = {PRODUCT: 1.5e-3, CONVOLUTION: 2e-3}
    choose_flat = functools.partial(make_step, kind="flat")

    def probed(kind: str) -> float:
        used.append(torch.get_num_threads())
        return times[kind]

    def measured(workload: Workload, *, iterations: int, choose: ChooseStep):
        times[CONVOLUTION] = 4e-3  # the machine gets slower meanwhile
        assert choose is choose_flat
        found = measurement([layer("fc", 1e-3, 1e-3)], step="flat")
        return replace(found, conditions={**found.conditions, "threads": threads})

    monkeypatch.setattr(probes.probe, "seconds", probed)
    monkeypatch.setattr(room, "measure", measured)
    before = torch.get_num_threads()
    found = probes.beside(Workload("mlp", "digits", memory_format="contiguous"), choose_flat, 20)
    assert found.drift[PRODUCT] == pytest.approx(1.5)
    assert found.drift[CONVOLUTION] == pytest.approx(2.0 if threads == "1" else 1.5)
    assert set(used[-2 * room.PROBES :]) == {int(threads)} and torch.get_num_threads() == before
    assert found.memory_format == "contiguous" and found.layers == {"fc": (1e-3, 1e-3)}
