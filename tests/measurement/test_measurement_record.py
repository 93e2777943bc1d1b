"""A measurement is a record: it survives saving and loading, and a corrupted file is rejected."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import paceline
from paceline import record
from paceline.errors import RecordError
from paceline.measurement.layer_clock import LayerClock
from tests.measurement.slow_layers import iterations


@pytest.fixture(scope="module")
def measured() -> paceline.Measurement:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
        for x in iterations(clock, 20):
            model(x).sum().backward()
            optimizer.step()
    return clock.measurement()


def test_a_loaded_measurement_equals_the_saved_one(measured, tmp_path):
    record.save(measured, tmp_path / "record.json")
    assert json.loads((tmp_path / "record.json").read_text())["kind"] == "measurement"
    loaded = paceline.load(tmp_path)
    assert type(loaded) is paceline.Measurement
    assert record.dump(loaded) == record.dump(measured)  # a number that is missing is no number, and equals nothing
    assert replace(loaded, kept=()) == replace(measured, kept=())
    assert loaded.trace == measured.trace and loaded.layers == measured.layers


def test_all_numbers_are_finite(measured):
    numbers = [value for layer in measured.layers for value in vars(layer).values() if isinstance(value, float)]
    assert numbers and all(math.isfinite(number) for number in numbers)
    assert all(math.isfinite(value) for value in measured.parts_s.values())


def test_a_newer_schema_asks_for_an_update(measured, tmp_path):
    content = {**record.dump(measured), "schema": record.SCHEMA + 1}
    (tmp_path / "record.json").write_text(json.dumps(content))
    with pytest.raises(RecordError, match="update Paceline"):
        paceline.load(tmp_path)


def test_a_file_cut_short_is_refused(measured, tmp_path):
    path = tmp_path / "record.json"
    record.save(measured, path)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:length])
        with pytest.raises(RecordError, match="is not a Paceline record"):
            paceline.load(path)


def test_a_missing_field_is_named(measured, tmp_path):
    content = record.dump(measured)
    del content["layers"][0]["forward_s"]
    (tmp_path / "record.json").write_text(json.dumps(content))
    with pytest.raises(RecordError, match=r"layers\[0\].forward_s is missing"):
        paceline.load(tmp_path)


def test_a_record_of_an_older_schema_names_its_version(measured, tmp_path):
    (tmp_path / "record.json").write_text(json.dumps({**record.dump(measured), "schema": 3}))
    with pytest.raises(RecordError, match="has schema 3, which is too old"):
        paceline.load(tmp_path)


def test_what_is_unattributed_may_be_negative_by_any_amount(measured, tmp_path):
    record.save(replace(measured, parts_s={**measured.parts_s, "unattributed": -2.0}), tmp_path / "record.json")
    assert paceline.load(tmp_path).parts_s["unattributed"] == -2.0


def test_a_part_from_which_more_was_subtracted_than_it_took_loads_again(measured, tmp_path):
    parts = {**measured.parts_s, "idle": -2e-6}
    record.save(replace(measured, parts_s=parts, idle_causes_s={"waiting": -5e-6}), tmp_path / "record.json")
    assert paceline.load(tmp_path).idle_causes_s == {"waiting": -5e-6}


def test_a_time_that_noise_does_not_explain_is_refused(measured, tmp_path):
    record.save(replace(measured, idle_causes_s={"waiting": -1.0}), tmp_path / "record.json")
    with pytest.raises(RecordError, match="idle_causes_s"):
        paceline.load(tmp_path)
