"""A checkpoint loads in plain PyTorch, is whole or refused, runs no code, and outlives a full disk."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline import networks
from paceline.errors import CheckpointError, OutputError
from paceline.training.checkpoint import (
    NAME,
    SCHEMA,
    Checkpoint,
    load_checkpoint,
    load_parameters,
    save_checkpoint,
)
from paceline.training.resuming import resumed_workload
from paceline.training.trainer import run
from paceline.workload import Workload, resolve


def build(name: str = "mlp", **options) -> nn.Module:
    return networks.build(name, shape=(1, 8, 8), classes=10, **options)


def a_checkpoint(network: nn.Module, **changes) -> Checkpoint:
    checkpoint = Checkpoint(
        workload=Workload(network="mlp", options={"hidden": [50]}, dropout=None),
        step_kind="flat",
        epoch=3,
        next_step=7,
        updates=52,
        samples=(1437, 360),
        parameters=network.state_dict(),
        optimizer={"flat": [{"velocity": torch.arange(5.0)}]},
        score={"loss_sum": 1.5, "samples": 700},
        record="{}",
    )
    return replace(checkpoint, **changes)


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as raised:
        load_checkpoint(path)
    text = str(raised.value)
    assert "\n" not in text and str(path) in text
    return text


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    save_checkpoint(a_checkpoint(build()), tmp_path)
    return tmp_path / NAME


def test_what_is_loaded_is_what_was_saved(tmp_path):
    before = a_checkpoint(build())
    save_checkpoint(before, tmp_path)
    for place in (tmp_path, tmp_path / NAME):
        after = load_checkpoint(place)
        assert {**vars(after), "parameters": 0, "optimizer": 0} == {
            **vars(before),
            "parameters": 0,
            "optimizer": 0,
        }
        assert after.parameters.keys() == before.parameters.keys()
        assert all(torch.equal(after.parameters[name], value) for name, value in before.parameters.items())
        assert torch.equal(after.optimizer["flat"][0]["velocity"], torch.arange(5.0))
    assert [p.name for p in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize("step", ["plain", "flat"])
def test_a_runs_parameters_load_in_plain_pytorch(tmp_path, step):
    workload = resolve("mlp", {"epochs": 1, "data": "digits:200"})
    run(workload, step=step, out=tmp_path / "run")
    content = torch.load(tmp_path / "run" / NAME, weights_only=True)
    network = build()
    before = network.output.weight.clone()
    network.load_state_dict(content["parameters"])
    assert not torch.equal(network.output.weight, before)
    assert content["epoch"] == 1 and content["updates"] == 2 and content["workload"]["network"] == "mlp"


def test_parameters_that_were_views_are_saved_alone(tmp_path):
    """A flat step keeps all parameters in one buffer; saving each with the whole of it would be quadratic."""
    run(resolve("mlp", {"epochs": 1, "data": "digits:200"}), step="flat", out=tmp_path / "run")
    parameters = torch.load(tmp_path / "run" / NAME, weights_only=True)["parameters"]
    for value in parameters.values():
        assert value.untyped_storage().nbytes() == value.numel() * value.element_size()


@pytest.mark.parametrize(
    ("made_on", "asked", "expected"),
    [("cuda:0", "auto", "contiguous"), ("cpu", "auto", "auto"), ("cuda", "channels-last", "channels-last")],
)
def test_a_run_that_moves_to_another_kind_of_device_keeps_its_memory_format(made_on, asked, expected):
    record = json.dumps({"conditions": {"device": made_on}})
    workload = Workload(network="mlp", device="cpu", memory_format=asked)
    checkpoint = a_checkpoint(build(), record=record, workload=workload)
    assert resumed_workload(checkpoint, {}, Path("run")).memory_format == expected


def test_a_missing_one_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=f"no checkpoint at {tmp_path / NAME}"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.9999])
def test_one_that_was_cut_short_is_refused(saved, share):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: min(int(share * len(whole)), len(whole) - 1)])
    assert "is not a whole checkpoint" in refused(saved)


def data_of(path: Path, member: str) -> tuple[int, int]:
    """Where in the file the bytes of a member are."""
    with zipfile.ZipFile(path) as archive:
        info = next(i for i in archive.infolist() if i.filename.endswith(member))
        archive.open(info).close()
        raw = path.read_bytes()
        start = info.header_offset + 30
        start += int.from_bytes(raw[start - 4 : start - 2], "little") + int.from_bytes(raw[start - 2 : start], "little")
        return start, info.file_size


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("member", ["data.pkl", "data/0", "data/2"])
def test_one_flipped_bit_in_the_data_is_refused(saved, member):
    start, size = data_of(saved, member)
    flip(saved, start + size // 2)
    assert "damaged" in refused(saved)


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(saved, tmp_path):
    """Between the parts of the file there is padding that means nothing."""
    whole = saved.read_bytes()
    expected = load_checkpoint(saved)
    other = tmp_path / "flipped.pt"
    refusals = 0
    for place in range(0, len(whole), len(whole) // 60):
        other.write_bytes(whole)
        flip(other, place)
        try:
            found = load_checkpoint(other)
        except CheckpointError:
            refusals += 1
            continue
        assert found.workload == expected.workload and found.updates == expected.updates
        assert all(torch.equal(found.parameters[n], v) for n, v in expected.parameters.items())
    assert refusals > 30


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_one_that_would_run_code_is_refused_and_the_code_is_not_run(tmp_path):
    target = tmp_path / "touched"
    pickle.loads(pickle.dumps(Malicious(target)))
    assert target.exists(), "the attack must be a real one"
    target.unlink()
    path = tmp_path / NAME
    content = {"schema": SCHEMA, **vars(a_checkpoint(build())), "workload": {}, "record": Malicious(target)}
    torch.save(content, path)
    assert "unsafe" in refused(path)
    path.write_bytes(pickle.dumps(Malicious(target)))
    refused(path)
    assert not target.exists()


@pytest.mark.parametrize("content", [{}, [1], {"schema": "1"}, {"parameters": {}}])
def test_what_pytorch_wrote_for_others_is_refused(tmp_path, content):
    torch.save(content, tmp_path / NAME)
    assert refused(tmp_path / NAME).endswith("is not a checkpoint of Paceline")


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
def test_another_schema_is_refused_by_its_number(tmp_path, schema):
    torch.save({"schema": schema}, tmp_path / NAME)
    assert f"has schema {schema}, this version reads {SCHEMA}" in refused(tmp_path / NAME)


@pytest.mark.parametrize("change", [{"workload": {"bacth": 3}}, {"workload": {"lr": -1.0}}, {"colour": 3}])
def test_one_that_does_not_fit_this_version_is_refused(saved, change):
    content = torch.load(saved, weights_only=True)
    torch.save({**content, **change}, saved)
    assert "is not a checkpoint this version can read" in refused(saved)
    del content["parameters"]
    torch.save(content, saved)
    assert "is not a checkpoint this version can read" in refused(saved)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (lambda: build("lenet5"), "it has no "),
        (lambda: build("mlp", hidden=[51]), r"fc1.weight is \(50, 64\), not \(51, 64\)"),
        (lambda: nn.Sequential(), "it has fc1.bias too"),
    ],
)
def test_parameters_of_another_network_are_refused_and_change_nothing(saved, other, expected):
    network = other()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(CheckpointError, match=f"belongs to another network: .*({expected})"):
        load_parameters(network, load_checkpoint(saved), saved)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_parameters_go_into_a_fresh_network(saved):
    network = build()
    checkpoint = load_checkpoint(saved)
    load_parameters(network, checkpoint, saved)
    assert all(torch.equal(value, checkpoint.parameters[n]) for n, value in network.state_dict().items())


def check_that_the_old_one_is_left(directory: Path) -> None:
    assert load_checkpoint(directory).updates == 52
    assert [p.name for p in directory.iterdir()] == [NAME]


def test_a_failing_disk_leaves_the_old_one(saved, monkeypatch):
    def fail(*_) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError) as raised:
        save_checkpoint(a_checkpoint(build(), updates=99), saved.parent)
    assert str(raised.value) == f"cannot write {saved}: No space left on device (the disk is full)"
    monkeypatch.undo()
    check_that_the_old_one_is_left(saved.parent)


def test_dev_full_is_a_full_disk(tmp_path, monkeypatch):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    full = Path("/dev/full").open
    monkeypatch.setattr(Path, "open", lambda _, mode: full(mode))
    with pytest.raises(OutputError, match="the disk is full"):
        save_checkpoint(a_checkpoint(build("mlp", hidden=[2000])), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up_leaves_the_old_one(small_disk):
    save_checkpoint(a_checkpoint(build()), small_disk)
    larger = build("mlp", hidden=[2000])
    with pytest.raises(OutputError, match=r"cannot write .*: No space left on device \(the disk is full\)"):
        save_checkpoint(a_checkpoint(larger, updates=99), small_disk)
    check_that_the_old_one_is_left(small_disk)
    save_checkpoint(a_checkpoint(build(), updates=53), small_disk)
    assert load_checkpoint(small_disk).updates == 53


def test_what_a_killed_process_left_is_cleared_away(saved):
    left = saved.parent / f".{NAME}.{2**22 + 1}.tmp"  # more than any process id
    left.write_bytes(b"half")
    save_checkpoint(a_checkpoint(build()), saved.parent)
    check_that_the_old_one_is_left(saved.parent)


def test_a_place_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OutputError, match=f"cannot write {tmp_path / 'none' / NAME}: No such file or directory"):
        save_checkpoint(a_checkpoint(build()), tmp_path / "none")
