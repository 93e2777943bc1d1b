"""The time of one validation, whole or from a part."""

from __future__ import annotations

import math

from paceline.training.evaluate import time_validation
from paceline.workload import resolve


def test_a_short_validation_is_measured_whole():
    found = time_validation(resolve("mlp", {"data": "digits", "device": "cpu"}))
    assert 0 < found.seconds < 10 and found.how == "one validation of 360 samples"


def test_a_long_one_is_extrapolated_and_says_so(monkeypatch):
    monkeypatch.setattr("paceline.training.evaluate.VALUES_A_BATCH", 64 * 100)  # batches of 100
    found = time_validation(resolve("mlp", {"data": "digits", "device": "cpu"}), longest_s=0.0)
    assert found.seconds > 0 and found.how == "extrapolated to 360 samples from 100 of them"


def test_without_test_samples_there_is_a_reason_instead_of_a_number(monkeypatch, tmp_path):
    (tmp_path / "train_only.py").write_text(
        "import torch, paceline\n"
        "def make():\n"
        "    x, y = torch.rand(64, 1, 8, 8), torch.zeros(64, dtype=torch.int64)\n"
        "    some = paceline.Arrays(x, y)\n"
        "    return paceline.Dataset('mine', 'image', (1, 8, 8), ('a', 'b'), some, some.first(0))\n"
    )
    monkeypatch.chdir(tmp_path)
    found = time_validation(resolve("mlp", {"data": "train_only:make", "batch": 16, "device": "cpu"}))
    assert math.isnan(found.seconds) and "not measured" in found.how and "test samples" in found.how
