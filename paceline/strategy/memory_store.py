"""The engine's store in plain memory: versions of the parameters, the server's state, and payloads that wait.

Every update makes a new tensor that nobody overwrites; whoever fetched a version holds that tensor, and it is freed
with the last of them. The virtual driver, the replay and the server of a cluster use it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from paceline.strategy.event_record import UpdateRecord
from paceline.strategy.gradient_mean import GroupContribution, Payload
from paceline.strategy.instructions import Apply
from paceline.strategy.updater import Updater


class MemoryStore:
    def __init__(self, updater: Updater, initial: Tensor, *, record: bool = False) -> None:
        """With `record` the updates are kept for a replay."""
        self.updater = updater
        self.version = 0
        self.current = initial
        self.state = updater.initial_state()
        self.correction_state = defaultdict[int, dict[str, Tensor]](updater.initial_correction_state)
        """By group."""
        self.payloads: dict[tuple[int, int], tuple[Payload | None, Tensor | None]] = {}
        """By worker and sequence, with what they were computed on where a correction looks at it.

        None: it is part of the mean that another member of its group brought.
        """
        self.updates: list[UpdateRecord] | None = [] if record else None

    @property
    def recording(self) -> bool:
        return self.updates is not None

    def apply(self, order: Apply) -> None:
        given = []
        for contribution in order.contributions:
            found = [self.payloads[task.worker, task.sequence] for task in contribution.tasks]
            state = self.correction_state[contribution.group]
            payloads = [payload for payload, _ in found if payload is not None]
            given.append(GroupContribution(payloads, found[0][1], state, state))
        new = torch.empty_like(self.current)
        self.updater.apply(order, given, self.current, new, self.state, self.state)
        self.current, self.version = new, order.update
        if self.updates is not None:
            self.updates.append(UpdateRecord.of(order))

    def release(self, worker: int, sequence: int) -> None:
        self.payloads.pop((worker, sequence), None)

    # For a checkpoint

    def saved(self, groups: int) -> dict[str, Any]:
        """The server's state besides the parameters, of this version."""
        corrections = []
        if self.updater.correction_state_names:
            corrections = [_cloned(self.correction_state[group]) for group in range(groups)]
        return {"state": _cloned(self.state), "corrections": corrections}

    def restore(self, version: int, parameters: Tensor, saved: dict[str, Any]) -> None:
        if saved["state"].keys() != self.state.keys():
            raise KeyError("the server's optimizer is a different one")
        self.version, self.current = version, parameters
        for name, tensor in self.state.items():
            tensor.copy_(saved["state"][name])
        for group, was in enumerate(saved["corrections"]):
            for name, tensor in self.correction_state[group].items():
                tensor.copy_(was[name])


def _cloned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}
