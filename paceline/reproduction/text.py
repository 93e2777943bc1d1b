"""Text: how well the LSTM predicts the next character, and text that it generates."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from paceline.errors import PacelineError
from paceline.formatting import percent
from paceline.reproduction.study import Conclusions
from paceline.results.comparison_rows import ExtraTable, Finding
from paceline.results.table import ResultsTable
from paceline.step.build import load_data, placed_network
from paceline.training.checkpoint import load_checkpoint, load_parameters

PROMPT = "The "
CHARACTERS = 160


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    rows = [row for row in found.rows if row["status"] == "finished"]
    made = Conclusions()
    if not rows:
        return made
    best = min(rows, key=lambda row: row["test_loss"])
    made.findings = [
        Finding(
            f"With {best['options.hidden']} hidden units, the LSTM predicts {percent(best['test_accuracy'])} of the "
            f"next characters correctly, at a perplexity of {math.exp(best['test_loss']):.2f}.",
            "learned-by-hidden",
        ),
        Finding("Each size was trained once, so the noise between repetitions is unknown."),
    ]
    header = ("hidden units", "test loss, nats", "perplexity", "correct next characters, %", "training time, s")
    told = tuple(
        (
            str(row["options.hidden"]), f"{row['test_loss']:.4f}", f"{math.exp(row['test_loss']):.3f}",
            f"{100 * row['test_accuracy']:.2f}", f"{row['train_s']:.4g}",
        )
        for row in rows
    )  # fmt: skip
    made.tables = [ExtraTable("Perplexity", header, told)]
    texts = {str(row["options.hidden"]): written_by(found.directories[row["directory"]]) for row in rows}
    if written := tuple((hidden, text) for hidden, text in texts.items() if text):
        made.tables.append(ExtraTable("Generated text", ("hidden units", f"after {PROMPT!r}"), written))
    return made


def written_by(directory: Path) -> str:
    """Text generated character by character; empty if the parameters were not kept."""
    try:
        checkpoint = load_checkpoint(directory)
        dataset = load_data(checkpoint.workload)
        network = placed_network(checkpoint.workload, dataset, torch.device("cpu")).eval()
        load_parameters(network, checkpoint, directory)
    except PacelineError:
        return ""
    codes = {character: code for code, character in enumerate(dataset.classes)}
    generator = torch.Generator().manual_seed(0)
    text = PROMPT
    (window,) = dataset.shape
    with torch.no_grad():
        for _ in range(CHARACTERS):
            shown = torch.tensor([[codes[character] for character in text[-window:]]])
            likely = torch.softmax(network(shown)[0, -1] / 0.7, 0)
            text += dataset.classes[int(torch.multinomial(likely, 1, generator=generator))]
    return " ".join(text.split())
