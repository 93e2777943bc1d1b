"""Layers that are divided by feature, and parameters that are sharded, give the losses of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import paceline
from paceline.errors import InputError
from paceline.training.checkpoint import load_checkpoint
from tests.training.drivers.model_parallel.test_pipeline import DNN, SMALL, TEXT, losses

ADAM = DNN | {"optimizer": "adam", "lr": 0.001, "clip_norm": 0.5, "data": "digits:620"}


def test_a_layer_that_is_divided_by_feature_gives_the_same_losses(tmp_path: Path) -> None:
    settings = ADAM | {"dropout": 0.3, "microbatches": 1}
    whole = paceline.train("dnn", out=tmp_path / "whole", **settings)
    divided = paceline.train("dnn", tensor=2, out=tmp_path / "divided", **settings)
    assert losses(divided) == pytest.approx(losses(whole), rel=1e-5)
    one, other = (load_checkpoint(tmp_path / name).parameters for name in ("whole", "divided"))
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], rtol=1e-3, atol=1e-5) for name in one)
    shares = [
        process.parameters / sum(tensor.numel() for tensor in one.values()) for process in divided.division.processes
    ]
    assert all(0.5 <= share < 0.52 for share in shares)  # the bias of a second layer is not divided
    # another division, or one process, can go on with it
    resumed = paceline.resume(tmp_path / "divided", tensor=1, epochs=3)
    assert len(resumed.epochs) == 3 and resumed.division is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "settings"),
    [
        ("lenet5", SMALL | {"tensor": 2}),
        ("transformer", TEXT | {"tensor": 2}),
        ("dnn", DNN | {"dropout": 0.2, "tensor": 3}),
    ],
    ids=["lenet5", "transformer", "dnn"],
)
def test_networks_with_some_linear_layers_too(network: str, settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("layers are divided by feature, and the sums are added up again. " * 50)
    settings = settings | {"data": settings["data"].format(tmp_path / "text"), "options.hidden": [36, 36]}
    if network != "dnn":
        del settings["options.hidden"]
    alone = {key: value for key, value in settings.items() if key != "tensor"} | {"microbatches": 1}
    assert losses(paceline.train(network, **settings)) == pytest.approx(
        losses(paceline.train(network, **alone)), rel=1e-5
    )


def test_sharded_workers_give_the_losses_of_synchronous_ones(tmp_path: Path) -> None:
    settings = ADAM | {"dropout": 0.0, "workers": 2, "batch": 48}  # 13 batches, and the last has 44 samples
    workers = paceline.train("dnn", **settings)
    sharded = paceline.train("dnn", shard="fsdp", out=tmp_path / "run", **settings)
    assert sharded.updates == workers.updates == 14
    assert losses(sharded) == pytest.approx(losses(workers), rel=1e-5)
    whole = sum(tensor.numel() for tensor in load_checkpoint(tmp_path / "run").parameters.values())
    assert [process.parameters for process in sharded.division.processes] == [whole / 2] * 2
    resumed = paceline.resume(tmp_path / "run", epochs=3)
    assert resumed.division.shard == "fsdp" and len(resumed.epochs) == 3


@pytest.mark.slow
def test_shards_microbatches_and_batch_norm() -> None:
    settings = SMALL | {"data": "synthetic:3x8x8/4:112", "batch": 32, "workers": 2, "microbatches": 4}
    copies = paceline.train("resnet20", **settings)
    sharded = paceline.train("resnet20", shard="fsdp", **settings)
    assert losses(sharded) == pytest.approx(losses(copies), rel=1e-5)


@pytest.mark.slow
def test_copies_of_a_pipeline_of_divided_layers() -> None:
    settings = ADAM | {"dropout": 0.2, "microbatches": 4, "workers": 2}
    copies = paceline.train("dnn", **settings)
    all_three = paceline.train("dnn", pipeline=2, tensor=2, **settings)
    assert len(all_three.division.processes) == 8
    assert losses(all_three) == pytest.approx(losses(copies), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"shard": "fsdp"}, "divides a network among `workers=2` or more"),
        ({"shard": "fsdp", "workers": 2, "tensor": 2}, "and not into parts otherwise"),
        ({"tensor": 7}, "dnn has no linear layer whose features can be divided by `tensor=7`"),
        ({"tensor": 2, "device": "cuda"}, "`tensor=2` computes on CPUs alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_divided_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        paceline.train("dnn", **(DNN | {"dropout": 0.0} | settings))
