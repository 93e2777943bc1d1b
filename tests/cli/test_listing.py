"""`models`, `data` and `doctor`: tables for people, the same as JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from paceline import networks
from paceline.built_in import BUILT_IN


def test_models_lists_every_network_with_its_parameters_and_layers(paceline):
    result = paceline("models", "--json", "-")
    rows = {row["name"]: row for row in result.json}
    assert rows.keys() == BUILT_IN.keys()
    for row in rows.values():
        assert row["parameters"] == sum(layer["parameters"] for layer in row["layers"]) > 0
    mlp = networks.build("mlp", shape=(1, 28, 28), classes=10)
    assert rows["mlp"]["parameters"] == sum(p.numel() for p in mlp.parameters())
    assert [layer["name"] for layer in rows["mlp"]["layers"]] == ["fc1", "output"]
    assert all(f"\n{name} " in result.err for name in BUILT_IN)


def test_models_without_json_is_a_table_on_standard_output(paceline):
    result = paceline("models")
    assert result.code == 0 and result.err == ""
    (line,) = [line for line in result.out.splitlines() if line.startswith("lenet5 ")]
    assert "61,706" in line and "digits" in line


def test_json_goes_to_a_file(paceline, tmp_path):
    result = paceline("models", "--json", "models.json")
    assert "lenet5" in result.out
    assert {row["name"] for row in json.loads((tmp_path / "models.json").read_text())} == BUILT_IN.keys()


def test_data_lists_the_sources_and_where_they_are(paceline, tmp_path):
    result = paceline("data", "list", "--data-dir", tmp_path / "cache", "--json", "-")
    rows = {row["name"]: row for row in result.json}
    assert {"digits", "mnist", "fashion-mnist", "cifar10", "text"} <= rows.keys()
    assert rows["digits"]["samples"] == [1437, 360] and rows["digits"]["shape"] == [1, 8, 8]
    assert len(rows["digits"]["classes"]) == 10 and Path(rows["digits"]["place"]).exists()
    assert rows["cifar10"]["place"] is None, "the cache is empty"
    assert "digits" in result.err


def test_data_path_is_printed_or_fails(paceline, tmp_path):
    result = paceline("data", "path", "digits")
    assert result.code == 0 and Path(result.out.strip()).exists()
    assert paceline("data", "path", "digits", "--json", "-").json["path"] == result.out.strip()
    result = paceline("data", "path", "cifar10", "--data-dir", tmp_path / "cache")
    assert result.code == 1 and "paceline data fetch cifar10" in result.out
    assert "'digt'" in paceline("data", "path", "digt").refused()


def test_data_that_are_bundled_need_no_fetching(paceline):
    result = paceline("data", "fetch", "digits", "--json", "-")
    assert result.code == 0 and Path(result.json["path"]).exists()


def test_doctor_says_what_this_machine_has(paceline):
    result = paceline("doctor", "--json", "-")
    facts = result.json
    assert result.code == 0 and facts["torch"].startswith(torch.__version__)
    assert {"paceline", "python", "CPU", "memory", "compiler", "disk here", "data sets here"} <= facts.keys()
    assert ("GPU 0" in facts) == torch.cuda.is_available()
    assert "digits" in facts["data sets here"]
    assert all(isinstance(value, str) and value for value in facts.values())
    assert f"python {facts['python']}" in " ".join(result.err.split())
