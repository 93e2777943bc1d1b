"""The step of a network that is divided among processes: they train, this side counts and collects."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import torch
from torch import Tensor

from paceline.record import to_json
from paceline.step.optimizers import torch_optimizer
from paceline.step.phase import Batch
from paceline.step.step import Parts, Step
from paceline.step.tally import Tally
from paceline.training.division import Division
from paceline.training.drivers.model_parallel.messages import Advance, Advanced, Begin, Collect, WholeState
from paceline.training.drivers.model_parallel.stage_processes import StageProcesses
from paceline.training.resuming import DIVIDED


class DividedStep(Step):
    kind = DIVIDED

    def __init__(self, parts: Parts, processes: StageProcesses, division: Division) -> None:
        super().__init__(parts)
        self.processes, self.division = processes, division
        self.spans: list[tuple[str, str, float, float]] = []
        """Who, part, begin and end, on the clock that all processes share."""

    def begin(self, epoch: int, first: int = 0) -> None:
        self.epoch, self.next = epoch, first
        self.processes.ask(Begin(epoch, first))

    def advance(self, count: int, tally: Tally) -> None:
        answers: list[Advanced] = self.processes.ask(Advance(count))
        self.next += count
        for settings, answer in zip(self.processes.settings, answers, strict=True):
            tally.add_score(answer.score)
            self.spans += [(settings.who, *span) for span in answer.spans]
        self.division = dataclasses.replace(self.division, processes=tuple(answer.record for answer in answers))

    def take(self, batch: Batch) -> NoReturn:
        raise AssertionError("its processes take the steps")

    # What is kept

    def _collected(self, *, tensors: bool, optimizer: bool) -> list[WholeState]:
        found: list[WholeState] = self.processes.ask(Collect(tensors, optimizer))
        return found

    @torch.no_grad()
    def show(self) -> None:
        """Parameters are the same in all replicas; of buffers, such as a batch norm's, the network has the mean."""
        found: dict[str, list[Tensor]] = {}
        for part in self._collected(tensors=True, optimizer=False):
            for name, tensor in part.tensors.items():
                found.setdefault(name, []).append(tensor)
        trained = dict(self.parts.network.named_parameters())
        for name, tensor in self.parts.network.state_dict().items():
            copies = found[name]
            mean = tensor.is_floating_point() and name not in trained and len(copies) > 1
            tensor.copy_(torch.stack(copies).mean(0) if mean else copies[0])

    def state(self) -> dict[str, Any]:
        by_name = {
            name: state
            for part in self._collected(tensors=False, optimizer=True)
            for name, state in part.optimizer.items()
        }
        whole = torch_optimizer(self.parts.phases[0].rule, self._parameters()).state_dict()
        whole["state"] = {number: by_name[name] for number, name in enumerate(self._names()) if name in by_name}
        settings = self.processes.settings[0]
        return {"torch": [whole], "parallel": to_json(settings.parallel), "replicas": settings.replicas}

    def load_state(self, state: dict[str, Any]) -> None:
        names = self._names()
        by_name = {names[int(number)]: each for number, each in state["torch"][0]["state"].items()}
        self.processes.ask(WholeState(dict(self.parts.network.state_dict()), by_name))

    def _parameters(self) -> list[torch.nn.Parameter]:
        return list(self.parts.phases[0].parameters)

    def _names(self) -> list[str]:
        """Of the trained parameters, in the order of the whole network's optimizer."""
        names = {id(parameter): name for name, parameter in self.parts.network.named_parameters()}
        return [names[id(parameter)] for parameter in self._parameters()]

    def close(self) -> None:
        self.processes.stop()
        self.parts.feeder.close()
