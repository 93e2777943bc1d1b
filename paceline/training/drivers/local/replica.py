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
from paceline.training.drivers.local.shared_memory import UPDATE_WORDS, SharedMemory


class ParameterReplica:
    def __init__(self, memory: SharedMemory, updater: Updater, parameters: Tensor | None = None) -> None:
        """`parameters` is memory that nobody else writes; by default the replica allocates its own."""
        self.memory, self.updater = memory, updater
        self.parameters = torch.empty_like(memory.parameters[0]) if parameters is None else parameters
        self.state = {name: torch.empty_like(tensor) for name, tensor in memory.states[0].items()}
        self.version = -1
        """The version that it is; -1: none."""

    def catch_up(self, mine: int = -1, gradient: Tensor | None = None) -> int:
        """Applies all updates since the last call, from the newest snapshot if need be; returns the version.

        `mine` is an update that this process has just committed; its `gradient` is still in the core's cache.
        """
        memory = self.memory
        while True:
            start, newest = self.version, memory.version
            if start == newest:
                return start
            self.version = -1  # until all is done
            if start < 0 or start < memory.snapshot[1]:
                start = copy_snapshot(memory, self.parameters, self.state)
                newest = memory.version
            if self._make(start, newest, mine, gradient):
                self.version = newest
                return newest

    def _make(self, start: int, newest: int, mine: int, own: Tensor | None) -> bool:
        """Applies the updates after version `start`; False if one was overwritten before it was read."""
        memory, updates, rows = self.memory, self.memory.updates, self.memory.update_rows
        for version in range(start + 1, newest + 1):
            row = version % rows * UPDATE_WORDS
            place = updates[row]
            gradient = own if own is not None and version == mine else memory.gradients[place]
            epoch, closed, turn = updates[row + 1 : row + UPDATE_WORDS]
            self.updater.update_by(gradient, epoch, closed, self.parameters, self.state, turn)
            if memory.place_versions[place] != version:
                return False
        return memory.version < start + rows


def copy_snapshot(memory: SharedMemory, parameters: Tensor, state: dict[str, Tensor] | None = None) -> int:
    """Copies the newest snapshot without a lock, and returns its version."""
    while True:
        count, version = memory.snapshot
        parameters.copy_(memory.parameters[count % 2])
        for name, tensor in (state or {}).items():
            tensor.copy_(memory.states[count % 2][name])
        if memory.control[ControlField.SNAPSHOT_WRITING] <= count + 1:  # else the one after the next is in its place
            return version
