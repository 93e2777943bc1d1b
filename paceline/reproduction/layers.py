"""Layers: overhead and coverage of measuring every layer, beside a published study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from paceline.experiment.experiment import Experiment
from paceline.formatting import listed, median_of
from paceline.measurement.measurement import Measurement
from paceline.reporting.sections.overhead import measured_pairs, overhead_sentence, unattributed_sentence
from paceline.reporting.series import median_and_ends
from paceline.reproduction.study import Conclusions
from paceline.results.comparison_rows import Finding, PublishedRow
from paceline.results.records import find_records
from paceline.results.run_result import measurement_names, run_results
from paceline.results.table import ResultsTable

LONGER = {"alexnet": 245.0, "vgg11": 235.0}
MISSED = {"alexnet, the smaller batch": (44.0, 54.0), "alexnet, the larger batch": (38.0, 44.0), "vgg11": (45.0, 49.0)}
GPU_EPOCHS = 10  # iterations are faster on a GPU, and steady times need more of them


def adapted(experiment: Experiment) -> Experiment:
    if not torch.cuda.is_available():
        return experiment
    return replace(experiment, workload={**experiment.workload, "epochs": GPU_EPOCHS})


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    records = find_records([directory])
    measured, runs = measurement_names(records), run_results(records)
    made = Conclusions()
    if not measured:
        return made
    repeated = any(len(pairs) > 1 for pairs in measured_pairs(measured, runs).values())
    made.findings = [
        Finding(overhead_sentence(measured, runs), "with-and-without" if repeated else "sampled-iterations"),
        Finding(unattributed_sentence(measured)),
        Finding(
            "Imran reports 235 to 245 % more training time with measuring; 38 to 54 % of an iteration is unattributed."
        ),
        *(Finding(sentence, "layers") for sentence in _dominating(measured)),
    ]
    made.published = _published(measured)
    return made


def _of(measured: list[tuple[str, Measurement]], name: str) -> list[Measurement]:
    """Measurements of a network, or of its smaller or larger batch."""
    network, _, which = name.partition(", ")
    mine = [m for _, m in measured if m.name == network]
    batches = sorted({m.batch for m in mine})
    if which and batches:
        mine = [m for m in mine if m.batch == (batches[-1] if "larger" in which else batches[0])]
    return mine


def _published(measured: list[tuple[str, Measurement]]) -> list[PublishedRow]:
    rows = []
    for name, theirs in LONGER.items():
        more, unit = 100 * median_of(m.overhead for m in _of(measured, name)), "% more training time with measuring"
        rows.append(PublishedRow(f"{name}: overhead of measuring", theirs, more, unit))
    for name, ends in MISSED.items():
        missed = [100 * abs(1 - m.accounted) for m in _of(measured, name)]
        _, *ours = median_and_ends(missed)
        for which, end, value in zip(("minimum", "maximum"), ends, ours, strict=True):
            rows.append(PublishedRow(f"{name}: {which} unattributed", end, value, "% of an iteration, unattributed"))
    return rows


def _dominating(measured: list[tuple[str, Measurement]]) -> list[str]:
    """The slowest layers of each network, and in how many layers backward is slower than forward."""
    said = []
    for network in dict.fromkeys(m.name for _, m in measured):
        m = _of(measured, network)[-1]
        layers = [layer for layer in m.layers if layer.parameters]
        slowest = listed(layer.name for layer in sorted(layers, key=lambda layer: -layer.total_s)[:3])
        slower = sum(layer.backward_s.median_s > layer.forward_s.median_s for layer in layers)
        said.append(
            f"The slowest layers of {network} at batch size {m.batch} are {slowest}; backward is slower than forward "
            f"in {slower} of {len(layers)} layers."
        )
    return said
