"""What each family of networks learns on MNIST, and the bar of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn

import paceline
from benchmarks.kept_runs import kept_run
from paceline.networks import build
from paceline.training.checkpoint import load_checkpoint

JUDGE, JUDGE_EPOCHS = "lenet5", 4
"""The classifier that says what generated images show, and how long it is trained."""
CONFIDENCE = 0.9
SAMPLES = 2000


@dataclass(frozen=True)
class FamilyResult:
    network: str
    what: str
    found: float
    bar: float
    more_is_better: bool

    @property
    def reached(self) -> bool:
        return self.found >= self.bar if self.more_is_better else self.found <= self.bar


class Bench:
    """Trains what is asked for, once, and keeps it."""

    def __init__(self, directory: Path, quick: bool) -> None:
        self.directory, self.quick = directory, quick
        self.data = "digits" if quick else "mnist"

    def run_of(self, network: str, **settings: Any) -> paceline.Run:
        settings = {**settings, **({"epochs": 2} if self.quick else {})}
        return kept_run(self.directory / network, network, data=self.data, device="cpu", **settings)

    def trained(self, network: str, **settings: Any) -> nn.Module:
        """The network with what it learned, in evaluation mode."""
        self.run_of(network, **settings)
        x, _ = self.images("train")
        made = build(network, shape=tuple(x.shape[1:]), classes=10)
        made.load_state_dict(load_checkpoint(self.directory / network).parameters)
        return made.eval()

    def images(self, part: str) -> tuple[Tensor, Tensor]:
        dataset = paceline.load_dataset(self.data)
        arrays = getattr(dataset, part)
        return dataset.prepare(arrays.x, arrays.y)

    def judged(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """How sure the judge is of each image, and of which class."""
        judge = self.trained(JUDGE, epochs=JUDGE_EPOCHS)
        with torch.no_grad():
            found = judge(images).softmax(1).max(1)
        return found.values, found.indices


def reconstruction(bench: Bench, network: str) -> list[FamilyResult]:
    """The error on test images against that of as many principal components of the training images."""
    run = bench.run_of(network)
    code = int(run.workload.options.get("code", 20))
    train, test = (bench.images(part)[0].flatten(1).numpy() for part in ("train", "test"))
    components = PCA(code, svd_solver="covariance_eigh").fit(train)
    error = float(((components.inverse_transform(components.transform(test)) - test) ** 2).mean())
    what = f"reconstruction error; bar: PCA with {code} components"
    return [FamilyResult(network, what, run.epochs[-1].test_metric, error, more_is_better=False)]


def recognition(bench: Bench, network: str) -> list[FamilyResult]:
    images = bench.trained(network).generate(SAMPLES, generator=torch.Generator().manual_seed(0))
    confidence, classes = bench.judged(images)
    recognised = float((confidence > CONFIDENCE).float().mean())
    rarest = float(torch.bincount(classes, minlength=10).min()) / SAMPLES
    return [
        FamilyResult(network, f"samples recognised by {JUDGE}, confidence > {CONFIDENCE}", recognised, 0.5, True),
        FamilyResult(network, f"rarest class among {SAMPLES:,} samples", rarest, 0.01, True),
    ]


def specification(bench: Bench, network: str) -> list[FamilyResult]:
    """Samples of a class are those of that class."""
    wanted = torch.arange(SAMPLES) % 10
    generator = torch.Generator().manual_seed(0)
    images = bench.trained(network).generate(SAMPLES, labels=wanted, generator=generator)
    right = float((bench.judged(images)[1] == wanted).float().mean())
    return [FamilyResult(network, f"samples that {JUDGE} takes for the class asked for", right, 0.5, True)]


def free_energy(bench: Bench, network: str) -> list[FamilyResult]:
    """How often a test image has a lower free energy than noise, and how many new samples the judge recognises."""
    machine = bench.trained(network)
    test, _ = bench.images("test")
    generator = torch.Generator().manual_seed(0)
    order = torch.rand(test.flatten(1).shape, generator=generator).argsort(1)
    with torch.no_grad():
        energies = [machine.free_energy(each) for each in (test, test.flatten(1).gather(1, order))]
    found = float(roc_auc_score([1] * len(test) + [0] * len(test), -torch.cat(energies).numpy()))
    recognised = float((bench.judged(machine.generate(SAMPLES, generator))[0] > CONFIDENCE).float().mean())
    return [
        FamilyResult(network, "free energy tells test images from shuffled ones (AUC)", found, 0.95, True),
        FamilyResult(network, f"samples recognised by {JUDGE}, confidence > {CONFIDENCE}", recognised, 1 / 3, True),
    ]


LABELLED, FINE_TUNING_EPOCHS = 1000, 60
RANDOM_RATES = (1.0, 2.0, 5.0)
"""Of networks that start from random weights: the best one counts."""


def pretraining(bench: Bench, network: str) -> list[FamilyResult]:
    """Pre-trained on all images without their labels, then fine-tuned with some, against random weights."""
    labelled = {"data": f"{bench.data}:{LABELLED}", "device": "cpu", "epochs": 2 if bench.quick else FINE_TUNING_EPOCHS}
    seeds = range(1 if bench.quick else 3)

    def accuracy(init: str, rate: float, seed: int) -> float:
        options = {"pretrain": 0, "rate": rate}
        return paceline.train(network, seed=seed, init=init, options=options, **labelled).test_accuracy

    starts = [bench.directory / f"{network}-pretrained-{seed}" for seed in seeds]
    for seed, start in enumerate(starts):
        kept_run(start, network, data=bench.data, device="cpu", seed=seed, epochs=6)
    found = mean(accuracy(str(start), 0.5, seed) for seed, start in enumerate(starts))
    random = max(
        mean(accuracy(init, rate, seed) for seed in seeds) for init in ("default", "xavier") for rate in RANDOM_RATES
    )
    what = f"accuracy with {LABELLED:,} labels, {len(seeds)} seeds; bar: random weights at their best rate"
    return [FamilyResult(network, what, found, random, True)]


def memory(bench: Bench, network: str) -> list[FamilyResult]:
    """The adding task over 100 steps: a simple recurrent network guesses, gated ones solve it."""
    settings = {"lr": 5e-3, "clip_norm": 1.0, "schedule": "constant", "options": {"hidden": 64}, "threads": 1}
    settings |= {"data": "adding:100", "device": "cpu", "epochs": 1 if bench.quick else 10}
    run = kept_run(bench.directory / f"{network}-adding", network, **settings)
    guesses = network == "rnn"
    what = f"accuracy on adding:100, guessing {run.chance_accuracy:.3f}"
    return [FamilyResult(network, what, run.test_accuracy, 0.25 if guesses else 0.95, not guesses)]


def trees(bench: Bench, network: str) -> list[FamilyResult]:
    """Against the best that a network makes of how often each token occurs."""
    found = paceline.train(network, device="cpu", **({"epochs": 1} if bench.quick else {})).test_accuracy
    logic = paceline.load_dataset(paceline.resolve(network).data)
    words = [torch.nn.functional.one_hot(part.x.long()).sum(1).numpy() for part in (logic.train, logic.test)]
    bag = MLPClassifier((64,), random_state=0, max_iter=50).fit(words[0], logic.train.y)
    counted = float(bag.score(words[1], logic.test.y))
    return [
        FamilyResult(network, "accuracy on logic:5", found, 0.99, True),
        FamilyResult("bag of words", "accuracy on logic:5, a network on the counts of tokens", counted, 0.65, False),
    ]


LEARNED: dict[str, tuple[Callable[[Bench, str], list[FamilyResult]], ...]] = {
    "autoencoder": (reconstruction,),
    "vae": (reconstruction,),
    "cvae": (reconstruction, specification),
    "deconvolutional": (reconstruction,),
    "gan": (recognition,),
    "rbm": (free_energy,),
    "dbn": (pretraining,),
    "rnn": (memory,),
    "gru": (memory,),
    "lstm": (memory,),
    "recursive": (trees,),
}
"""A family's bars."""
