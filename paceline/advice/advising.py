"""Makes an advice: family, network, settings, hardware and distribution, one after another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.advice.advice import Advice, Choice, options_text
from paceline.advice.data_facts import DataFacts, facts_of
from paceline.advice.distribution_choice import DistributionChoice, choose_distribution
from paceline.advice.family import FamilyChoice, choose_family
from paceline.advice.hardware import HardwareOption, hardware_options
from paceline.advice.network_choice import NetworkChoice, networks_for
from paceline.advice.predictor import Predictor
from paceline.advice.prefetching import choose_prefetching
from paceline.advice.settings_choice import candidate_workload, choose_batch, fit_epochs, fit_memory, initial_choice
from paceline.advice.task import TaskDescription
from paceline.cost.prediction import Prediction
from paceline.formatting import duration, listed
from paceline.workload import Workload


@dataclass(frozen=True)
class Consultation:
    """What a task, its data and the hardware come to, before any network is chosen."""

    task: TaskDescription
    facts: DataFacts
    predictor: Predictor
    options: tuple[HardwareOption, ...]
    family: FamilyChoice
    networks: tuple[NetworkChoice, ...]
    """From shallow to deep."""

    @staticmethod
    def of(task: TaskDescription) -> Consultation:
        options = hardware_options(task)
        facts, shape = facts_of(task)
        family = choose_family(task.task, facts)
        return Consultation(
            task, facts, Predictor(shape), options, family, networks_for(family.family, task.task, facts)
        )

    def advise(self, chosen: NetworkChoice | None = None) -> Advice:
        """For the network that is advised before any was tried, or another one."""
        chosen = chosen or next(each for each in self.networks if each.first)
        workload = candidate_workload(chosen, self.facts)
        option, device = self._fastest(workload)
        workload, prediction, batch = choose_batch(workload, self.facts, option, self.predictor)
        workload, prediction, batch = fit_memory(workload, prediction, batch, option, self.predictor)
        distributed = choose_distribution(workload, self.facts, option, self.task.devices, prediction)
        workload, epochs = fit_epochs(workload, distributed.epoch_s, self.task.time_s)
        prefetching = choose_prefetching(self.facts, option, distributed.workers, prediction)
        total_s = distributed.epoch_s * workload.epochs
        low_s, high_s = _interval(prediction, total_s)
        return Advice(
            task=self.task, family=chosen.family or self.family.family, workload=workload,
            choices=(
                self._family_of(chosen),
                Choice("network", _named(workload), chosen.reason),
                initial_choice(workload, self.facts), device, batch, epochs, distributed.parallelism,
                distributed.synchronisation, prefetching,
            ),
            workers=distributed.workers, machines=-(-distributed.workers // option.per_machine),
            pipeline=distributed.pipeline, tensor=distributed.tensor, strategy=distributed.strategy,
            groups=distributed.groups,
            stand_in=self.facts.stand_in,
            predicted_s=total_s, conditions=_conditions(option, prediction, distributed),
            low_s=low_s, high_s=high_s,
        )  # fmt: skip

    def _family_of(self, chosen: NetworkChoice) -> Choice:
        if not chosen.family:
            return Choice("family", self.family.family, self.family.reason)
        return Choice(
            "family",
            chosen.family,
            f"a shallow candidate; such data often need a deeper one: {self.family.family}",
        )

    def _fastest(self, workload: Workload) -> tuple[HardwareOption, Choice]:
        """The option with the shortest predicted step; the first one where nothing is known."""
        predicted = [(option, self.predictor.on(workload, option)) for option in self.options]
        known = [(found.iteration_s, option, found) for option, found in predicted if found is not None]
        if not known:
            (option, _), *_ = predicted
            why = "the only device named" if len(predicted) == 1 else "the first device named"
            missing = "there is no prediction without a calibration: run paceline calibrate"
            return option, Choice(
                "device", option.name, f"{why}; {missing if option.is_here else 'there is no prediction for it'}"
            )
        seconds, option, _ = min(known, key=lambda each: each[0])
        others = [f"{duration(s)} on {other.name}" for s, other, _ in known if other is not option]
        why = f"a step takes {duration(seconds)}" + (f", and {listed(others)}" if others else "")
        return option, Choice("device", option.name, why, seconds)


def _named(workload: Workload) -> str:
    options = options_text(workload)
    return f"{workload.network} ({options})" if options else workload.network


def _interval(prediction: Prediction | None, total_s: float) -> tuple[float, float]:
    """The 90 % interval of the whole training; its width is that of a step."""
    if prediction is None or not math.isfinite(total_s):
        return math.nan, math.nan
    return total_s * prediction.low_s / prediction.iteration_s, total_s * prediction.high_s / prediction.iteration_s


def _conditions(
    option: HardwareOption, prediction: Prediction | None, distributed: DistributionChoice
) -> dict[str, str]:
    made = {"basis": "nothing was predicted" if prediction is None else prediction.basis}
    if option.assumed and distributed.workers > 1:
        made["links assumed"] = option.assumed
    return made
