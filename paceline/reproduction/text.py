"""Text: how well the LSTM predicts characters, and what it writes by itself."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from paceline.errors import PacelineError
from paceline.formatting import percent
from paceline.reproduction.study import Beside
from paceline.results.comparison_rows import ExtraTable, Finding
from paceline.results.table import ResultsTable
from paceline.step.build import load_data, placed_network
from paceline.training.checkpoint import load_checkpoint, load_parameters

QUICK = "This is the quick version: 6 epochs of 3,000 windows of 64 characters instead of 8 of all of them."
PROMPT = "The "
CHARACTERS = 160


def beside(found: ResultsTable, directory: Path) -> Beside:
    rows = [row for row in found.rows if row["status"] == "finished"]
    made = Beside()
    if not rows:
        return made
    best = min(rows, key=lambda row: row["test_loss"])
    made.findings = [
        Finding(
            f"With {best['options.hidden']} hidden units the LSTM predicts {percent(best['test_accuracy'], 1)} of the "
            f"next characters; its perplexity is {math.exp(best['test_loss']):.2f}: so many come into question.",
            "learnt-by-hidden",
        )
    ]
    header = ("hidden units", "test loss, nats", "perplexity", "next characters right, %", "train s")
    told = tuple(
        (
            str(row["options.hidden"]), f"{row['test_loss']:.4f}", f"{math.exp(row['test_loss']):.3f}",
            f"{100 * row['test_accuracy']:.2f}", f"{row['train_s']:.4g}",
        )
        for row in rows
    )  # fmt: skip
    made.tables = [ExtraTable("Perplexity", header, told)]
    written = [(str(row["options.hidden"]), written_by(found.directories[row["directory"]])) for row in rows]
    written = [(hidden, text) for hidden, text in written if text]
    if written:
        made.tables.append(ExtraTable("What it writes", ("hidden units", f"after {PROMPT!r}"), tuple(written)))
    return made


def written_by(directory: Path, count: int = CHARACTERS) -> str:
    """What a trained network goes on with, character by character; nothing where its parameters are not kept."""
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
        for _ in range(count):
            shown = torch.tensor([[codes[character] for character in text[-window:]]])
            likely = torch.softmax(network(shown)[0, -1] / 0.7, 0)
            text += dataset.classes[int(torch.multinomial(likely, 1, generator=generator))]
    return " ".join(text.split())
