"""The record of an advice: what was asked, each choice with its reason, the workload, and what was tried."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.advice.task import TaskDescription
from paceline.advice.workload_file import workload_text
from paceline.formatting import duration, number, percent
from paceline.notebook import NotebookRecord
from paceline.workload import Workload

STAND_IN_NOTE = "these stand in for the data that were described; put the source of your own here"


@dataclass(frozen=True)
class Choice:
    topic: str
    value: str
    reason: str
    predicted_s: float = math.nan
    """Time that the cost model predicts for it, if it knows."""


@dataclass(frozen=True)
class TriedCandidate:
    """A candidate that was trained."""

    workload: Workload
    status: str
    """finished, out of time, diverged or failed."""
    error: float
    """On the test data after its last validation; NaN if there was none."""
    wall_s: float
    predicted_s: float = math.nan
    accepted: bool = False
    directory: str = ""
    """Of the run, inside that of the advice."""
    why: str = ""
    """What ended a trial that did not finish."""


@dataclass(frozen=True, repr=False)
class Advice(NotebookRecord):
    """The network and settings that `paceline.advise` recommends for a task, each with its reason."""

    task: TaskDescription
    family: str
    workload: Workload
    choices: tuple[Choice, ...]
    workers: int = 1
    machines: int = 1
    """That the workers are on."""
    pipeline: int = 1
    """Stages that the network is divided into, where one device cannot hold it."""
    tensor: int = 1
    """Devices that each linear layer is divided among, where the layers are too few for stages."""
    strategy: str = ""
    """Of several workers; empty for one."""
    groups: int = 1
    """Synchronous groups of workers, where the strategy has several."""
    stand_in: bool = False
    """Whether the workload's data are synthetic samples in place of the described ones."""
    predicted_s: float = math.nan
    """Time of the whole training; NaN if the cost model does not know the device."""
    low_s: float = math.nan
    """Lower end of the 90 % interval of `predicted_s`."""
    high_s: float = math.nan
    error_name: str = "error"
    trials: tuple[TriedCandidate, ...] = ()
    """In the order in which they were made."""
    conditions: dict[str, str] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether a trial reached the acceptable error; without trials nothing is known to the contrary."""
        return not self.trials or any(trial.accepted for trial in self.trials)

    @property
    def chosen(self) -> TriedCandidate | None:
        """The trial of the advised workload."""
        return next((trial for trial in self.trials if trial.workload == self.workload), None)

    def choice(self, topic: str) -> Choice:
        return next(each for each in self.choices if each.topic == topic)

    @property
    def toml(self) -> str:
        """The workload as a file that `paceline train` runs, with the reasons as comments."""
        notes = [f"{each.topic}: {each.value}. {each.reason[0].upper()}{each.reason[1:]}." for each in self.choices]
        if self.stand_in:
            notes.append(f"data: {STAND_IN_NOTE}.")
        return workload_text(self.workload, notes)

    def train_command(self, file: str | Path) -> str:
        """What trains as advised."""
        words = ["paceline", "train", str(file)]
        for option, count in (("--pipeline", self.pipeline), ("--tensor", self.tensor), ("--workers", self.workers)):
            words += [option, str(count)] if count > 1 else []
        words += ["--strategy", self.strategy] if self.workers > 1 else []
        words += ["--groups", f"{self.groups}x{self.workers // self.groups}"] if self.groups > 1 else []
        words += ["--driver", "ray"] if self.machines > 1 else []
        return shlex.join(words)

    def facts(self) -> dict[str, Any]:
        return {
            "task": self.task.task, "family": self.family, "network": self.workload.network,
            "data": self.workload.data, "workers": self.workers, "predicted_s": self.predicted_s,
            **({"tried": len(self.trials), "met": self.met} if self.trials else {}),
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """The choices and their reasons."""
        return [
            {
                "topic": each.topic, "choice": each.value, "reason": each.reason,
                "predicted": duration(each.predicted_s) if math.isfinite(each.predicted_s) else "",
            }
            for each in self.choices
        ]  # fmt: skip

    def trial_table(self) -> list[dict[str, Any]]:
        """What was tried, cheapest first."""
        return [
            {
                "chosen": trial.workload == self.workload, "network": trial.workload.network,
                "options": options_text(trial.workload), "epochs": trial.workload.epochs,
                self.error_name: trial.error, "wall_s": trial.wall_s, "predicted_s": trial.predicted_s,
                "status": trial.status,
            }
            for trial in self.trials
        ]  # fmt: skip


def options_text(workload: Workload) -> str:
    """The options of a network in a few words."""
    words = [f"{key} {'-'.join(map(str, v)) if isinstance(v, list) else v}" for key, v in workload.options.items()]
    return ", ".join(words)


def error_words(error: float, name: str) -> str:
    """The share of wrong answers as a percentage, any other metric as a number."""
    return percent(error) if name == "error" else number(error)
