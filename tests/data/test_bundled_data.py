"""Digits and synthetic data are always there, and always the same."""

import torch

from paceline import data


def test_digits_are_split_alike_in_every_class():
    digits = data.load("digits")
    assert (len(digits.train), len(digits.test), digits.shape) == (1437, 360, (1, 8, 8))
    assert float(digits.train.x.min()) == 0 and float(digits.train.x.max()) == 1
    shares = torch.bincount(digits.test.y) / torch.bincount(torch.cat([digits.train.y, digits.test.y]))
    assert (shares - 0.2).abs().max() < 0.01


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    digits = data.load("digits")
    ours = torch.cat([digits.train.x, digits.test.x]).flatten(1).mul(16).sum(0)
    assert torch.equal(ours, torch.from_numpy(load_digits().data).sum(0).float())


def test_a_count_takes_the_first_training_samples():
    whole, few = data.load("digits"), data.load("digits:500")
    assert torch.equal(few.train.x, whole.train.x[:500])
    assert torch.equal(few.test.x, whole.test.x)


def test_synthetic_data_repeat_and_have_the_asked_form():
    one, two = data.load("synthetic:3x16x16/7:100"), data.load("synthetic:3x16x16/7:100")
    assert (len(one.train), len(one.test), len(one.classes), one.shape) == (100, 25, 7, (3, 16, 16))
    assert torch.equal(one.train.x, two.train.x) and torch.equal(one.test.y, two.test.y)
    assert not torch.equal(one.train.x[:25], one.test.x)
    assert (len(data.load("synthetic:8").train), len(data.load("synthetic:8").test)) == (1024, 256)


def test_synthetic_data_are_standard_and_can_be_learnt():
    noise = data.load("synthetic:1x16x16/10")
    x, y = noise.prepare(noise.train.x, noise.train.y)
    assert abs(float(x.mean())) < 0.1 and abs(float(x.std()) - 1) < 0.1
    centres = torch.stack([x[y == label].mean(0) for label in range(10)])
    test_x, test_y = noise.prepare(noise.test.x, noise.test.y)
    guess = torch.cdist(test_x.flatten(1), centres.flatten(1)).argmin(1)
    assert (guess == test_y).float().mean() > 0.9


def test_importing_the_package_does_not_import_torch():
    import subprocess
    import sys

    check = "import paceline.data, paceline.data.decode_worker, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
