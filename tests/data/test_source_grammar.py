"""A data source is written NAME[:ARGUMENT][?KEY=VALUE&...][:COUNT]."""

from pathlib import Path

import pytest

from paceline import data
from paceline.data.source import parse
from paceline.errors import DataError


@pytest.mark.parametrize(
    ("text", "name", "argument", "options", "count"),
    [
        ("digits", "digits", None, {}, None),
        ("mnist:20000", "mnist", None, {}, 20000),
        ("mnist?path=/data/mnist", "mnist", None, {"path": "/data/mnist"}, None),
        ("mnist?path=/data/mnist:50", "mnist", None, {"path": "/data/mnist"}, 50),
        ("mnist?first=50", "mnist", None, {}, 50),
        (
            "images:photos?classes=cat,dog&size=96:7",
            "images",
            "photos",
            {"classes": "cat,dog", "size": "96"},
            7,
        ),
        ("images:a:b/photos", "images", "a:b/photos", {}, None),
        ("images:what?/photos", "images", "what?/photos", {}, None),
        ("images:photos?classes=salt%26pepper", "images", "photos", {"classes": "salt&pepper"}, None),
        ("images:http://host:8000/photos:5", "images", "http://host:8000/photos", {}, 5),
        ("images:s3://bucket:20", "images", "s3://bucket", {}, 20),
        ("images:http://host:8000", "images", "http://host:8000", {}, None),
        ("synthetic:3x224x224/1000:64", "synthetic", "3x224x224/1000", {}, 64),
        ("synthetic:8", "synthetic", "8", {}, None),
        ("synthetic:8:64", "synthetic", "8", {}, 64),
        ("images:?size=8:9", "images", "", {"size": "8"}, 9),
        ("text:64", "text", None, {}, 64),
        ("mymodule:make", "mymodule", "make", {}, None),
        ("pkg.mymodule:make:9", "pkg.mymodule", "make", {}, 9),
    ],
)
def test_a_source_is_taken_apart(text, name, argument, options, count):
    source = parse(text)
    assert (source.name, source.argument, dict(source.options), source.count) == (
        name,
        argument,
        options,
        count,
    )


def test_an_existing_folder_whose_name_ends_like_a_count_is_that_folder(tmp_path: Path):
    (tmp_path / "run:5").mkdir()
    assert parse(f"images:{tmp_path}/run:5").count is None
    assert parse(f"images:{tmp_path}/run:6").count == 6
    assert parse(f"images:{tmp_path}/run:5?first=3").count == 3


def test_a_file_that_happens_to_be_called_like_a_count_changes_nothing(tmp_path: Path, monkeypatch):
    (tmp_path / "500").touch()
    monkeypatch.chdir(tmp_path)
    assert parse("digits:500").count == 500


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mnits", "did you mean mnist"),
        ("mnits:5", "did you mean mnist"),
        ("imges:folder", "did you mean images"),
        ("digits:0", "at least 1"),
        ("digits:-3", "at least 1"),
        ("digits:1438", "more than the 1437 training samples"),
        ("digits:many", "digits:COUNT"),
        ("digits?size=3", "no options"),
        ("images:.?siz=3", "did you mean size"),
        ("images:.?size=big", "whole number"),
        ("digits?first=5:6", "given twice"),
        ("synthetic:3by3", "SHAPE/CLASSES"),
        ("synthetic:0x3", "at least 1"),
        ("synthetic", "shape is missing"),
        ("images", "path is missing"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(text, says):
    with pytest.raises(DataError, match=says) as error:
        data.load(text)
    assert "\n" not in str(error.value)
