"""Folders of images from end to end: training, validating, names of classes, a subset, and going on later."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import paceline as package
from paceline.training import trainer
from paceline.training.watcher import Silent
from paceline.workload import resolve

TRAIN = ["train", "lenet5", "--batch", "8", "--epochs", "3", "--device", "cpu", "--threads", "1", "--out", "run"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for number, name in enumerate(("n01", "n02", "n03")):
        (root / name).mkdir(parents=True)
        for i in range(20):
            noise = np.random.default_rng((number, i)).integers(0, 60, (36, 36, 3), dtype=np.uint8)
            noise[:, :, number] += 190
            Image.fromarray(noise).save(root / name / f"{i:02}.png")
    (tmp_path / "names.json").write_text(json.dumps({"n01": "cat", "n02": "dog", "n03": "bird"}))
    return root


def test_colours_are_learnt_and_evaluated(paceline, tmp_path, photos):
    result = paceline(*TRAIN, "--data", "images:photos?size=32")
    assert result.code == 0 and "data: 54 files, decoded ahead by" in result.out
    run = package.load(tmp_path / "run")
    assert run.updates == 3 * 7 and run.epochs[-1].loss < run.epochs[0].loss
    evaluation = paceline("evaluate", "run", "--json", "-").json
    assert evaluation["samples"] == 6 and evaluation["accuracy"] == run.test_accuracy


def test_some_classes_by_their_readable_names(paceline, tmp_path, photos):
    source = "images:photos?size=32&labels=names.json&classes=bird,cat"
    assert paceline(*TRAIN, "--data", source).code == 0
    weights = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["parameters"]
    assert next(reversed(weights.values())).shape == (2,)
    line = paceline("train", "lenet5", "--data", source.replace("bird", "brid")).refused()
    assert "no class 'brid'; did you mean bird" in line


def test_an_image_that_cannot_be_read_is_named(paceline, photos):
    (photos / "n02" / "03.png").write_bytes(b"no image")
    line = paceline(*TRAIN, "--data", "images:photos?size=32").refused()
    assert line.startswith(f"image {photos / 'n02' / '03.png'} cannot be read")


class Death(Exception):
    pass


class DiesAt(Silent):
    def __init__(self, step: int) -> None:
        self.step = step

    def advanced(self, progress) -> None:
        if (progress.epoch, progress.step) >= (1, self.step):
            raise Death


def test_a_run_on_images_goes_on_bit_for_bit(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "CHUNK_S", 1e-6)
    settings = {"data": f"images:{photos}?size=32", "batch": 8, "epochs": 3, "device": "cpu", "threads": 1}
    workload = resolve("lenet5", settings)
    trainer.run(workload, out=tmp_path / "whole", checkpoint_every_s=0)
    with pytest.raises(Death):
        trainer.run(workload, out=tmp_path / "killed", checkpoint_every_s=0, watcher=DiesAt(4))
    run = trainer.resume(tmp_path / "killed", checkpoint_every_s=0)
    assert run.resumed == 1 and len(run.epochs) == 3
    whole, resumed = (
        torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["parameters"] for name in ("whole", "killed")
    )
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_images_that_were_added_or_removed_are_noticed(paceline, photos):
    assert paceline(*TRAIN, "--data", "images:photos?size=32").code == 0
    (photos / "n02" / "03.png").unlink()
    line = paceline("train", "--resume", "run", "--epochs", "4").refused()
    assert line == "run is of 54 + 6 samples, images:photos?size=32 now has 54 + 5"
