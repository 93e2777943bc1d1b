"""Which family of networks fits a task, as the survey of performance factors by Wünsche (2018) has it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.advice.data_facts import FEW_LABELS, DataFacts
from paceline.advice.task import AUDIO, CLASSIFY, COMPRESS, GENERATE, IMAGE, SEQUENCE, SPECIFIED, TABLE, TEXT, TREES
from paceline.errors import InputError

FEED_FORWARD = "feed-forward"
AUTO_ENCODER = "auto-encoder"
VARIATIONAL = "variational auto-encoder"
BELIEF = "deep belief network"
ADVERSARIAL = "generative adversarial network"
CONVOLUTIONAL = "convolutional"
RECURRENT = "recurrent"
RECURSIVE = "recursive"
DECONVOLUTIONAL = "deconvolutional"

SMALL_IMAGE = 64
"""Pixels of a side up to which networks for small images are used."""


@dataclass(frozen=True)
class FamilyChoice:
    family: str
    reason: str


def choose_family(task: str, facts: DataFacts) -> FamilyChoice:
    """One family, and why; a combination that no built-in network serves is an error that says what to do."""
    kind = facts.kind
    if task in (CLASSIFY, SPECIFIED, SEQUENCE) and not facts.classes:
        raise InputError(f"`data={facts.source!r:.60}` have no classes, which {task} needs")
    if kind == TREES:
        if task in (CLASSIFY, SEQUENCE):
            return FamilyChoice(RECURSIVE, "a recursive network follows the branches of each tree")
        raise InputError(f"no built-in network can {_words(task)} trees: describe them as a table of numbers")
    if kind == TEXT:
        return _for_text(task)
    if task == CLASSIFY:
        return _for_classes(facts)
    if task == SEQUENCE:
        if len(facts.shape) < 2:
            raise InputError("a sequence needs steps: give `kind='table'` a shape STEPSxNUMBERS, e.g. 100x2")
        return FamilyChoice(RECURRENT, "it keeps a state from step to step, so it uses their order")
    if task == COMPRESS and kind == IMAGE and min(facts.shape[-2:]) > SMALL_IMAGE:
        return FamilyChoice(DECONVOLUTIONAL, "images this large need convolutions, both to the code and back")
    if task == COMPRESS:
        return FamilyChoice(AUTO_ENCODER, "it learns a short code from which each sample is reconstructed")
    if task == SPECIFIED:
        return FamilyChoice(
            VARIATIONAL, "conditioned on the class, it generates samples of a requested class, which a GAN does not"
        )
    assert task == GENERATE
    if kind == TABLE:
        return FamilyChoice(VARIATIONAL, "it generates new rows from a code; the built-in GAN generates images only")
    return FamilyChoice(ADVERSARIAL, "it generates random samples like those it was trained on")


def _for_text(task: str) -> FamilyChoice:
    if task in (GENERATE, SPECIFIED):
        return FamilyChoice(RECURRENT, "an LSTM continues the text that it is given, character by character")
    if task == SEQUENCE:
        return FamilyChoice(RECURRENT, "an LSTM remembers earlier characters")
    raise InputError(
        f"no built-in network can {_words(task)} whole texts: describe them as a table, e.g. of word counts, "
        "or train your own network as module:function"
    )


def _for_classes(facts: DataFacts) -> FamilyChoice:
    if facts.kind == AUDIO or facts.is_sequence:
        return FamilyChoice(RECURRENT, "the signal changes over time, and an LSTM remembers earlier steps")
    if facts.kind == TABLE:
        return FamilyChoice(FEED_FORWARD, "a shallow network trains fastest and is often enough for a table")
    if facts.labels < FEW_LABELS * facts.samples:
        return FamilyChoice(
            BELIEF,
            f"only {facts.labels:,} of {facts.samples:,} samples have labels: pre-training without labels is a better "
            "start than random weights",
        )
    return FamilyChoice(CONVOLUTIONAL, "images need a deep network, and convolutions find patterns anywhere in them")


def _words(task: str) -> str:
    return "generate" if task in (GENERATE, SPECIFIED) else task
