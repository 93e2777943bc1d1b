"""Runs a step through epoch after epoch of whole batches, for as many iterations as wanted."""

from __future__ import annotations

from time import perf_counter

import torch

from paceline.step.step import Step
from paceline.step.tally import Tally


class StepLoop:
    def __init__(self, step: Step) -> None:
        self.step = step
        self.epoch = 0

    def run(self, count: int) -> None:
        whole = self.step.parts.feeder.order.full_batches
        while count:
            now = min(count, whole)
            self.step.begin(self.epoch)
            self.step.advance(now, Tally(self.step.parts.workload.top))
            self.epoch += 1
            count -= now

    def timed(self, count: int) -> float:
        """Seconds an iteration, over `count` of them, from an idle device to an idle device."""
        synchronise(self.step.parts.device)
        start_s = perf_counter()
        self.run(count)
        synchronise(self.step.parts.device)
        return (perf_counter() - start_s) / count


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
