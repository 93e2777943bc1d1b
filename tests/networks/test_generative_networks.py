"""Auto-encoders, variational ones, deconvolutional networks and GANs: their losses, and the samples they generate."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from paceline.errors import NetworkError
from paceline.networks import build

LABELS = torch.tensor([0, 3, 1, 2, 0, 1])


def made(name: str, shape: tuple[int, ...] = (1, 8, 8), **options: object) -> nn.Module:
    torch.manual_seed(0)
    return build(name, shape=shape, classes=4, **options)


def images(shape: tuple[int, ...] = (1, 8, 8)) -> Tensor:
    return torch.rand(6, *shape, generator=torch.Generator().manual_seed(1))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", ["vae", "cvae"])
def test_the_loss_of_a_vae_is_the_bound_of_the_paper(name):
    network, x = made(name), images()
    (criterion,) = network.criteria()
    torch.manual_seed(5)
    found = criterion.loss(x, LABELS)
    torch.manual_seed(5)
    mean, log_variance = network.encode(x, LABELS)
    codes = Normal(mean, (0.5 * log_variance).exp())
    decoded = network.decode(codes.mean + codes.stddev * torch.randn_like(mean), LABELS)
    divergence = kl_divergence(codes, Normal(0.0, 1.0)).sum(1)
    likelihood = (x * decoded.log() + (1 - x) * (1 - decoded).log()).flatten(1).sum(1)
    torch.testing.assert_close(found, (divergence - likelihood).mean() / 64)


def test_a_class_changes_what_a_conditional_vae_encodes_and_generates():
    network, x = made("cvae"), images()
    assert not torch.allclose(network(x, LABELS), network(x, (LABELS + 1) % 4))
    for one, other in ((0, 1), (2, None)):
        assert not torch.allclose(network.generate(4, one, seeded(3)), network.generate(4, other, seeded(3)))
    in_turn, each = network.generate(6, generator=seeded(3)), network.generate(6, [0, 1, 2, 3, 0, 1], seeded(3))
    assert torch.equal(in_turn, each)
    assert torch.equal(network.generate(6, 2, seeded(3)), network.generate(6, torch.full((6,), 2), seeded(3)))


@pytest.mark.parametrize("name", ["vae", "cvae", "gan"])
@pytest.mark.parametrize("training", [True, False])
def test_samples_follow_from_the_generator_and_leave_the_network_as_it_was(name, training):
    network = made(name, (2, 9, 6)).train(training)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    one, same, other = (network.generate(5, generator=seeded(seed)) for seed in (1, 1, 2))
    assert one.shape == (5, 2, 9, 6) and not one.requires_grad
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert network.training is training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert network.generate(0).shape == (0, 2, 9, 6)


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("vae", 1, "labels=1 cannot be asked for: this network has no classes; use cvae"),
        ("cvae", 4, "labels=4 must be classes from 0 to 3"),
        ("cvae", [0, 1, -1], "labels=[0, 1, -1] must be classes from 0 to 3"),
        ("cvae", [0, 1], "labels=[0, 1] must be one whole number, or one for each of 3 samples"),
        ("cvae", 1.0, "labels=1.0 must be one whole number"),
    ],
)
def test_labels_that_cannot_be_generated_are_refused(name, labels, message):
    with pytest.raises(NetworkError, match=re.escape(message)):
        made(name).generate(3, labels)


@pytest.mark.parametrize("name", ["deconvolutional", "gan"])
def test_images_of_any_size_from_four_pixels_on(name):
    for shape in ((1, 4, 4), (3, 5, 7), (1, 6, 11), (2, 28, 28)):
        network, x = made(name, shape), images(shape)
        made_up = network(x) if name == "deconvolutional" else network.generate(6)
        assert made_up.shape == x.shape
    with pytest.raises(NetworkError, match=f"too small for '{name}': it needs at least 4 x 4 pixels"):
        made(name, (1, 3, 8))
    assert made(name, (1, 8, 16), channels=[4, 5, 6]) is not None


def test_sides_double_step_by_step():
    network = made("deconvolutional", (1, 30, 28))
    sides = [tuple(network.decoder[:place](torch.zeros(1, 20)).shape[2:]) for place in range(5, 9)]
    assert sides == [(7, 7), (15, 14), (15, 14), (30, 28)]


def test_each_player_of_a_gan_is_trained_by_its_own_loss():
    network, x = made("gan"), images()
    discriminator, generator = network.criteria()
    names = {id(parameter): name.partition(".")[0] for name, parameter in network.named_parameters()}
    for criterion in (discriminator, generator):
        assert {names[id(parameter)] for parameter in criterion.parameters} == {criterion.name}
    assert len({*map(id, discriminator.parameters), *map(id, generator.parameters)}) == len(names)
    torch.manual_seed(2)
    loss = discriminator.loss(x, LABELS)
    gradients = torch.autograd.grad(loss, generator.parameters, allow_unused=True)
    assert all(gradient is None for gradient in gradients), "the generator must not help the discriminator"


def test_losses_of_a_gan_are_the_cross_entropies_of_the_paper():
    network, x = made("gan").eval(), images()
    discriminator, generator = network.criteria()
    torch.manual_seed(2)
    found, fooled = discriminator.loss(x, LABELS), generator.loss(x, LABELS)
    torch.manual_seed(2)
    one, other = network.generate(6), network.generate(6)
    real, fake = torch.sigmoid(network(x)), torch.sigmoid(network(one))
    torch.testing.assert_close(found, -(real.log().mean() + (1 - fake).log().mean()))
    torch.testing.assert_close(fooled, -torch.sigmoid(network(other)).log().mean())


@pytest.mark.parametrize("name", ["vae", "cvae", "gan"])
def test_new_samples_lie_within_the_limits_of_those_seen(name):
    network = made(name)
    criterion, limits = network.criteria()[0], network.range.limits
    assert limits.tolist() == [0, 1]
    criterion.loss(images(), LABELS)
    assert limits.tolist() == [0, 1]
    seen = 6 * images() - 2
    criterion.loss(seen, LABELS)
    assert limits.tolist() == [float(seen.min()), float(seen.max())]
    criterion.loss(images(), LABELS)
    network.eval()
    criterion.loss(100 * images(), LABELS)  # a test is not a training sample
    assert limits.tolist() == [float(seen.min()), float(seen.max())]
    new = network.generate(50)
    assert seen.min() <= new.min() < 0.5 * (seen.min() + seen.max()) < new.max() <= seen.max()
    torch.testing.assert_close(network.range.from_unit(network.range.to_unit(seen)), seen)


def test_the_metric_of_a_gan_is_the_distance_to_the_nearest_new_sample():
    network, x = made("gan").eval(), images()
    torch.manual_seed(4)
    found = network.metric.of(x, LABELS)
    torch.manual_seed(4)
    new = network.generate(1000)
    by_hand = torch.stack([(new - image).square().mean((1, 2, 3)).min() for image in x])
    torch.testing.assert_close(found, by_hand, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["autoencoder", "vae", "cvae", "deconvolutional"])
def test_the_metric_of_the_others_is_the_mean_squared_error(name):
    network, x = made(name).eval(), images()
    reconstructed = network(x, LABELS) if name == "cvae" else network(x)
    torch.testing.assert_close(network.metric.of(x, LABELS), (reconstructed - x).square().mean((1, 2, 3)))


@pytest.mark.parametrize("name", ["autoencoder", "vae", "cvae", "deconvolutional", "gan"])
def test_figures_can_be_drawn_of_few_samples_too(name):
    from paceline.reporting.learned import draw_panels

    network = made(name).eval()
    for count in (6, 24):
        x, y = images().repeat(count // 6, 1, 1, 1), LABELS.repeat(count // 6)
        with torch.no_grad():
            panels = network.learned(x, y)
        assert all(panel.title for panel in panels)
        assert draw_panels(panels).get_figwidth() < 12  # wider ones would be too small on a page
