"""A process's own copy of the newest parameters and of the optimizer's state, brought up to date update by update.

Where workers commit, an update is published as the gradient it is made of, and every process that needs the parameters
makes it for itself: writing a vector that another core has in its cache costs several times as much as the update.
All make the same updates in the same order, so all have the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.strategy.updater import Updater
from paceline.training.drivers.local.fields import ControlField
from paceline.training.drivers.local.shared_memory import SharedMemory


class ParameterReplica:
    def __init__(self, memory: SharedMemory, updater: Updater, parameters: Tensor | None = None) -> None:
        """`parameters` is memory for them, which nobody else changes; without it there is some of its own."""
        self.memory, self.updater = memory, updater
        self.parameters = torch.empty_like(memory.parameters[0]) if parameters is None else parameters
        self.state = {name: torch.empty_like(tensor) for name, tensor in memory.states[0].items()}
        self.version = -1
        """The version that it is; -1: none."""

    def catch_up(self) -> int:
        """Makes the updates since, or those since the newest snapshot if it is behind that one; the newest version."""
        memory, rows = self.memory, len(self.memory.gradients)
        while True:
            start = self.version
            if start == (newest := memory.version):
                return start
            self.version = -1  # until all is done
            if start < memory.snapshot[1]:
                start = copy_snapshot(memory, self.parameters, self.state)
                newest = memory.version
            for version in range(start + 1, newest + 1):
                self._make(version)
            if memory.version < start + rows:  # else the first gradient may have been overwritten meanwhile
                self.version = newest
                return newest

    def make_next(self, version: int) -> None:
        """Makes an update that is about to be published, as the holder of the writer lock."""
        self.catch_up()
        self.version = -1
        self._make(version)
        self.version = version

    def _make(self, version: int) -> None:
        row = version % len(self.memory.gradients)
        epoch, closed = self.memory.gradient_words[2 * row], self.memory.gradient_words[2 * row + 1]
        self.updater.update_by(self.memory.gradients[row], epoch, closed, self.parameters, self.state)


def copy_snapshot(memory: SharedMemory, parameters: Tensor, state: dict[str, Tensor] | None = None) -> int:
    """Copies the newest snapshot, without a lock; its version."""
    while True:
        count, version = memory.snapshot
        parameters.copy_(memory.parameters[count % 2])
        for name, tensor in (state or {}).items():
            tensor.copy_(memory.states[count % 2][name])
        if memory.control[ControlField.SNAPSHOT_WRITING] <= count + 1:  # else the one after the next is in its place
            return version
