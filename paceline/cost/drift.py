"""How much slower a CPU is than when it was calibrated: the calibration's probes again, beside a measured network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import torch

from paceline.cost.calibration import TrialSet
from paceline.cost.timing import Probe
from paceline.measurement.measuring import measure
from paceline.measurement.network_times import NetworkTimes, times_of
from paceline.step.make import ChooseStep
from paceline.step.placement import cpu_settings_restored
from paceline.workload import Workload

PROBES = 30
"""Of each kind, before and after a network."""
MORE_ITERATIONS, MORE_ITERATIONS_S = 176, 1.2
"""If this many iterations take less than this many seconds, they are measured, so that sampled and untouched iterations
alternate."""


def usual_probes_s(sets: Sequence[TrialSet]) -> dict[int, dict[str, float]]:
    """The probes' times during the trials that have all of them, by number of threads."""
    return {each.threads: each.probes_s for each in sets if each.memory_format == "contiguous"}


class DriftProbes:
    """`usual_s`: the probes' times when the machine was calibrated, by number of threads."""

    def __init__(self, device: torch.device, usual_s: Mapping[int, Mapping[str, float]]) -> None:
        self.probe = Probe(device)
        self.usual_s = usual_s
        self.threads = max(usual_s)

    def drift(self) -> dict[str, float]:
        """By probe: its time divided by the usual one, with as many threads as the network beside it."""
        with cpu_settings_restored():
            torch.set_num_threads(self.threads)
            return {
                kind: median(self.probe.seconds(kind) for _ in range(PROBES)) / usual
                for kind, usual in self.usual_s[self.threads].items()
            }

    def beside(self, workload: Workload, choose: ChooseStep, iterations: int) -> NetworkTimes:
        """The network measured, and the drift meanwhile."""
        before = self.drift()
        found = measure(workload, choose=choose, iterations=iterations)
        if found.iteration_s.median_s * MORE_ITERATIONS < MORE_ITERATIONS_S:  # in few, marks weigh more
            found = measure(workload, choose=choose, iterations=MORE_ITERATIONS)
        if int(found.conditions["threads"]) != self.threads:
            self.threads = int(found.conditions["threads"])
            before = self.drift()
        after = self.drift()
        drift = {kind: (took + after[kind]) / 2 for kind, took in before.items()}
        return replace(times_of(found), drift=drift, memory_format=workload.memory_format)
