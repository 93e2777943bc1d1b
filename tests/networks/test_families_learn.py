"""Each family learns what it is for: small seeded versions on digits; the soak tier has the whole bars on MNIST."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

import paceline
from benchmarks.families import LEARNED, Bench
from paceline.data import load
from paceline.networks import build
from paceline.training.checkpoint import load_checkpoint

CODE = 2
SETTINGS = {"data": "digits", "device": "cpu", "threads": 1}
SMALLER = {"deconvolutional": {"channels": [8, 16], "hidden": 64}}


def trained(directory: Path, name: str, **settings: object) -> nn.Module:
    paceline.train(name, out=directory, **SETTINGS, **settings)
    network = build(name, shape=(1, 8, 8), classes=10, **settings.get("options", {}))
    network.load_state_dict(load_checkpoint(directory).parameters)
    return network.eval()


@pytest.mark.parametrize("name", ["autoencoder", "vae", "deconvolutional"])
def test_reconstructions_are_better_than_those_of_as_many_principal_components(name):
    options = {"code": CODE, **SMALLER.get(name, {})}
    run = paceline.train(name, epochs=15, batch=32, lr=5e-3, options=options, **SETTINGS)
    digits = load("digits")
    train, test = (part.x.flatten(1).numpy() for part in (digits.train, digits.test))
    components = PCA(CODE).fit(train)
    error = ((components.inverse_transform(components.transform(test)) - test) ** 2).mean()
    assert run.metric == "reconstruction error" and run.epochs[-1].test_metric < 0.9 * error


def test_a_conditional_vae_generates_the_classes_that_are_asked_for(tmp_path):
    network = trained(tmp_path / "cvae", "cvae", epochs=15, batch=32, options={"code": 4})
    judge = trained(tmp_path / "mlp", "mlp", epochs=10)
    wanted = torch.arange(500) % 10
    samples = network.generate(500, labels=wanted, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert float((judge(samples).argmax(1) == wanted).float().mean()) > 0.8


@pytest.mark.slow
def test_samples_of_a_gan_look_like_digits_of_many_classes(tmp_path):
    """A judge that knows digits is sure of more of them than of noise with the same mean and deviation per pixel."""
    network = trained(tmp_path / "gan", "gan", epochs=40, lr=2e-3)
    judge = trained(tmp_path / "lenet5", "lenet5", epochs=20)
    samples = network.generate(500, generator=torch.Generator().manual_seed(0))
    digits = load("digits").train.x
    noise = digits.mean(0) + digits.std(0) * torch.randn(samples.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        sure, classes = judge(samples).softmax(1).max(1)
        unsure = judge(noise.clamp(0, 1)).softmax(1).amax(1)
    assert float((sure > 0.9).float().mean()) > 0.5 > float((unsure > 0.9).float().mean())
    assert int((torch.bincount(classes, minlength=10) >= 5).sum()) >= 8


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LEARNED)
def test_the_bars_on_mnist(name, tmp_path_factory):
    bench = Bench(tmp_path_factory.getbasetemp() / "families", quick=False)
    for bar in LEARNED[name]:
        for result in bar(bench, name):
            assert result.reached, result
