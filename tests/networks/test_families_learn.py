"""Each family learns what it is for: small seeded versions on digits; the soak tier has the whole bars on MNIST."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

import paceline
from benchmarks.family_bars import LEARNED, Bench
from benchmarks.family_workers import COMPARED, SEEDS, STANDARD_ERRORS, same_with_workers
from paceline.data import load
from paceline.networks import build
from paceline.training.checkpoint import load_checkpoint
from paceline.training.watcher import Silent

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


@pytest.mark.parametrize("strategy", ["sync", "downpour"])
@pytest.mark.parametrize("name", ["cvae", "gan"])
def test_workers_train_networks_with_several_phases_and_with_buffers(name, strategy, tmp_path):
    """Data beyond 0 to 1, so that a range that does not reach the server shows."""
    settings = {"data": f"{__name__}:wide_digits", "batch": 16, "epochs": 2, "device": "cpu", "threads": 1}
    run = paceline.train(name, strategy, workers=2, driver="virtual", out=tmp_path / "run", **settings)
    assert run.status == "finished"
    parameters = load_checkpoint(tmp_path / "run").parameters
    assert parameters["range.limits"].tolist() == pytest.approx([-2, 2])
    start = build(name, shape=(1, 8, 8), classes=10).state_dict()
    assert all(not torch.equal(parameters[key], start[key]) for key in parameters if key.endswith("weight"))


@pytest.mark.parametrize(
    ("name", "strategy", "said"),
    [("gan", "downpour", True), ("gan", "sync", False), ("gan", "local-sgd", False), ("dbn", "sync", False)],
)
def test_workers_that_train_phases_at_once_say_so(name, strategy, said):
    class Notes(Silent):
        def begun(self, run, notes):
            found.extend(notes)

    found = []
    settings = {"data": "digits:64", "batch": 16, "epochs": 1, "device": "cpu", "threads": 1}
    paceline.train(name, strategy, workers=2, driver="virtual", watcher=Notes(), **settings)
    assert any("'discriminator', 'generator' with the same parameters" in note for note in found) == said


def wide_digits() -> tuple[torch.Tensor, torch.Tensor]:
    digits = load("digits").train
    return 4 * digits.x[:160] - 2, digits.y[:160]


@pytest.mark.slow
def test_samples_of_a_gan_are_near_the_data_and_of_many_classes(tmp_path):
    network = trained(tmp_path / "gan", "gan", epochs=50, lr=2e-3)
    judge = trained(tmp_path / "mlp", "mlp")
    samples = network.generate(500, generator=torch.Generator().manual_seed(0))
    digits = load("digits")
    to_the_mean = float((digits.test.x - digits.train.x.mean(0)).square().mean())
    with torch.no_grad():
        classes = judge(samples).argmax(1)
        torch.manual_seed(0)
        distance = float(network.metric.of(digits.test.x, digits.test.y).mean())
    assert distance < 0.8 * to_the_mean
    assert int((torch.bincount(classes, minlength=10) >= 5).sum()) >= 8


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LEARNED)
def test_the_bars_on_mnist(name, tmp_path_factory):
    bench = Bench(tmp_path_factory.getbasetemp() / "families", quick=False)
    for bar in LEARNED[name]:
        for result in bar(bench, name):
            assert result.reached, result


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "strategy"), COMPARED)
def test_two_workers_learn_what_one_process_learns(name, strategy, tmp_path_factory):
    found = same_with_workers(name, strategy, SEEDS, tmp_path_factory.getbasetemp() / "family-workers")
    assert found["standard errors"] <= STANDARD_ERRORS, found
