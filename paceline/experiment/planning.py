"""From an experiment to its runs: combinations of the grid, random draws, repetitions with seeds, and their order."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from paceline import data
from paceline.errors import InputError, StrategyError, located
from paceline.experiment.experiment import Experiment
from paceline.experiment.keys import applicable, is_alone, section_of, setup_of, why_without_effect
from paceline.networks.building import check_options
from paceline.networks.known import KNOWN
from paceline.results.labels import grouped, label_by, setting_id, setting_text, telling_keys
from paceline.results.outcome import PlannedRun
from paceline.training.settings import RunSettings
from paceline.workload import Workload, from_network, resolve, with_settings

MOST_RUNS = 100_000


def plan_runs(experiment: Experiment) -> list[PlannedRun]:
    combinations = list(_combinations(experiment))
    _check_effect(experiment, [settings for _, settings in combinations])
    unlike: dict[str, tuple[int | None, dict[str, Any]]] = {}
    for trial, settings in combinations:  # settings that differ only in keys that do not apply are equal
        unlike.setdefault(setting_id(settings), (trial, settings))
    texts = [{key: setting_text(value) for key, value in settings.items()} for _, settings in unlike.values()]
    telling = telling_keys(texts)
    bases: dict[str, Workload] = {}
    planned: list[PlannedRun] = []
    for (setting, (trial, settings)), text in zip(unlike.items(), texts, strict=True):
        label = label_by(text, telling)
        with located(f"{label}: " if label else ""):
            workload = _workload(settings, bases)
            data.check_source(workload.data)  # errors that every run would raise
            if workload.network in KNOWN:
                check_options(workload.network, workload.options)
            setup = setup_of(settings)
        for repetition in range(1, experiment.repetitions + 1):
            seeded = dataclasses.replace(workload, seed=workload.seed + repetition - 1)
            number = len(planned)
            planned.append(PlannedRun(number, setting, repetition, trial, settings, seeded, setup.workers, label))
    return planned


def interleaved(runs: Iterable[PlannedRun], seed: int) -> list[PlannedRun]:
    """Every setting once, then every setting again, so that a slowdown of the machine affects all settings."""
    rounds = grouped(runs, lambda run: run.repetition)
    for repetition, members in rounds.items():
        random.Random(f"{seed}/{repetition}").shuffle(members)
    return [run for _, members in sorted(rounds.items()) for run in members]


def _combinations(experiment: Experiment) -> Iterator[tuple[int | None, dict[str, Any]]]:
    base = {"kind": RunSettings.kind, **experiment.run, **experiment.workload, **experiment.strategy}
    search = experiment.random
    blocks = experiment.grid or ({},)
    count = sum(math.prod(len(values) for values in block.values()) for block in blocks)
    count *= experiment.repetitions * (search.trials if search is not None else 1)
    if count > MOST_RUNS:
        raise InputError(f"{count:,} runs are more than {MOST_RUNS:,}: use fewer values, or [random]")
    for block in blocks:
        for values in product(*block.values()):
            given = base | dict(zip(block, values, strict=True))
            if search is None:
                yield None, applicable(given)
            else:
                for trial in range(1, search.trials + 1):
                    yield trial, applicable(given | search.settings(trial))


def _check_effect(experiment: Experiment, all_settings: list[dict[str, Any]]) -> None:
    """A setting without effect is an error."""
    drawn = experiment.random.draws if experiment.random is not None else {}
    tables = (experiment.run, experiment.strategy, *experiment.grid, drawn)
    used = {key for settings in all_settings for key in settings}
    for key in (key for table in tables for key in table):
        if key not in used:
            raise StrategyError(f"{key} has no effect on any run: {why_without_effect(key)}")
    for settings in all_settings:
        if settings["kind"] == "simulate" and is_alone(settings):
            raise StrategyError('kind = "simulate" needs a strategy, e.g. strategy = "downpour"')


def _workload(settings: Mapping[str, Any], bases: dict[str, Workload]) -> Workload:
    """The workload of a run. A custom function is called once, not for every run."""
    given = {key: value for key, value in settings.items() if section_of(key) == "workload"}
    network = given.pop("network", "mlp")
    if ":" not in network:
        return resolve(network, given)
    if network not in bases:
        bases[network] = resolve(network, {})
    made = bases[network]
    return from_network(network, given) if made.network == network else with_settings(made, given)
