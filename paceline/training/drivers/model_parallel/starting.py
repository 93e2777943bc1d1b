"""Prepares the processes of a divided network: where it is cut, how many threads each has, what they are told."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from paceline.data.dataset import Dataset
from paceline.data.ray_rows import check_without_ray
from paceline.errors import NetworkError, StrategyError
from paceline.networks.criterion import HasCriteria
from paceline.step.build import example_of, placed_network
from paceline.step.make import StepChoice
from paceline.step.order import Order
from paceline.step.phase import phases_of
from paceline.step.placement import available_cores
from paceline.step.randomness import default_generator
from paceline.step.step import Parts
from paceline.training.division import Division
from paceline.training.driver import RunOptions
from paceline.training.drivers.model_parallel.cutting import choose_cut
from paceline.training.drivers.model_parallel.divided_step import DividedStep
from paceline.training.drivers.model_parallel.process_settings import DividedSettings
from paceline.training.drivers.model_parallel.rehearsal import expected_idle_share
from paceline.training.drivers.model_parallel.stage_process import chain_of
from paceline.training.drivers.model_parallel.stage_processes import StageProcesses
from paceline.training.resuming import DIVIDED
from paceline.training.settings import ParallelSettings
from paceline.training.worker_parts import idle_feeder, saved_objects
from paceline.workload import Workload, with_settings


def make_divided(
    parallel: ParallelSettings, replicas: int, options: RunOptions, folder: Path, workload: Workload, dataset: Dataset
) -> tuple[DividedStep, StepChoice]:
    """Starts the processes; `folder` is for files that they need."""
    processes = replicas * parallel.processes
    threads = workload.threads or max(1, available_cores() // processes)
    parts = _parts(with_settings(workload, {"threads": threads}), dataset, replicas)
    example = example_of(workload, dataset, 2)
    if not isinstance(example, Tensor):
        raise NetworkError(f"a divided network takes one tensor per sample, {dataset.name} has several")
    if isinstance(parts.network, HasCriteria):
        raise NetworkError(f"{workload.network} trains with criteria of its own, and cannot be divided")
    if replicas > 1 and parts.feeder.order.all_batches < replicas:
        raise StrategyError(
            f"`workers={replicas}` are more than an epoch has batches, {parts.feeder.order.all_batches}"
        )
    count = parallel.microbatches_of(workload.batch)
    pieces = chain_of(workload, parts.network, example, parallel.pipeline)
    microbatch = example_of(workload, dataset, workload.batch // count)
    assert isinstance(microbatch, Tensor)
    cut = choose_cut(replace(workload, threads=threads), pieces, parallel.pipeline, parallel.cut, microbatch)
    settings = DividedSettings(
        workload=workload, parallel=parallel, replicas=replicas, cut=cut.firsts, rank=0, threads=threads,
        cache="" if options.cache is None else str(options.cache.resolve()),
        search_path=tuple(str(Path(place or ".").resolve()) for place in sys.path),
        rendezvous=str(folder / "meeting"), timeout_s=options.settings.busy_timeout,
        objects=saved_objects(workload, lambda: folder),
    )  # fmt: skip
    division = Division(
        replicas, parallel.pipeline, count, parallel.pipeline_schedule,
        tuple(pieces[first].name for first in cut.firsts), cut.why, tensor=parallel.tensor, shard=parallel.shard,
    )  # fmt: skip
    where = f", cut at {', '.join(division.cut[1:])} ({cut.why})" if parallel.pipeline > 1 else ""
    step = DividedStep(parts, StageProcesses(settings, options.settings), division)
    try:
        answers = step.processes.start()
    except BaseException:
        step.close()
        raise
    first_copy = answers[: parallel.processes : parallel.tensor]
    if rehearsals := [each.rehearsal for each in first_copy if each.rehearsal is not None]:
        expected = expected_idle_share(rehearsals, count, parallel.pipeline_schedule)
        step.division = replace(division, predicted_idle_share=expected)
    return step, StepChoice(DIVIDED, f"{division}{where}")


def _parts(workload: Workload, dataset: Dataset, replicas: int) -> Parts:
    """The whole network, for validation and checkpoints, and a feeder that is only asked for its order."""
    check_without_ray(dataset)
    device = torch.device("cpu")
    network = placed_network(workload, dataset, device)
    order = Order(len(dataset.train), workload.batch, workload.seed, 0, replicas)
    feeder = idle_feeder(dataset, order, device)
    return Parts(
        workload,
        dataset,
        network,
        phases_of(workload, network),
        feeder,
        device,
        default_generator(device),
        random=False,
    )
