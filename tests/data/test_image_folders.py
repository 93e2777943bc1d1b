"""Folders of images become classes, a training and a test part."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline import data
from paceline.errors import DataError


def _names(part) -> list[str]:
    return ["/".join(part.paths[i].split("/")[-2:]) for i in range(len(part))]


def test_every_tenth_image_of_a_class_is_for_testing(make_images):
    photos = data.load(f"images:{make_images(count=12)}?size=32")
    assert (photos.shape, photos.classes, len(photos.train), len(photos.test)) == (
        (3, 32, 32),
        ("cat", "dog"),
        22,
        2,
    )
    assert _names(photos.test) == ["cat/009.jpg", "dog/009.jpg"]
    assert _names(photos.train)[:4] == ["cat/000.png", "dog/000.png", "cat/001.jpg", "dog/001.jpg"]
    assert photos.train.labels[:4].tolist() == [0, 1, 0, 1]


def test_divided_folders_are_kept_divided(make_images):
    make_images(count=3, below="images/train")
    root = make_images(classes=("dog",), count=2, below="images/val").parent
    photos = data.load(f"images:{root}")
    assert (len(photos.train), len(photos.test), photos.shape) == (6, 2, (3, 224, 224))
    assert photos.test.labels.tolist() == [1, 1]
    (root / "val" / "bird").mkdir()
    with pytest.raises(DataError, match=r"val/bird is not in .*train"):
        data.load(f"images:{root}")


def test_a_small_class_still_has_a_test_image(make_images):
    photos = data.load(f"images:{make_images(count=3)}")
    assert (len(photos.train), len(photos.test)) == (4, 2)


def test_classes_can_be_chosen_and_named(make_images):
    root = make_images(classes=("n01", "n02", "n03"))
    (root / "names.json").write_text(json.dumps({"n01": "tench", "n02": "crane", "n03": "crane"}))
    named = data.load(f"images:{root}?labels=names.json")
    assert named.classes == ("tench", "crane (n02)", "crane (n03)")
    chosen = data.load(f"images:{root}?labels=names.json&classes=n03,tench")
    assert chosen.classes == ("tench", "crane") and set(chosen.train.labels.tolist()) == {0, 1}
    with pytest.raises(DataError, match="did you mean tench"):
        data.load(f"images:{root}?labels=names.json&classes=tensch")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"0": ["n01", "tench"], "1": ["n02", "great white shark"]}'),
        ("a.toml", 'n01 = "tench"\nn02 = "great white shark"\n'),
        ("a.csv", "n01,tench\nn02,great white shark\n"),
        ("a.txt", "n01 tench\n\nn02\tgreat white shark\n"),
    ],
)
def test_labels_come_in_several_forms(make_images, name, content):
    root = make_images(classes=("n01", "n02"))
    (root / name).write_text(content)
    assert data.load(f"images:{root}?labels={name}").classes == ("tench", "great white shark")


def test_unreadable_labels_are_named(make_images):
    root = make_images()
    with pytest.raises(DataError, match=r"nowhere\.json cannot be read"):
        data.load(f"images:{root}?labels=nowhere.json")
    (root / "bad.json").write_text("[1, 2")
    with pytest.raises(DataError, match=r"bad\.json must map"):
        data.load(f"images:{root}?labels=bad.json")


def test_unsuitable_folders_are_named(make_images, tmp_path: Path):
    with pytest.raises(DataError, match="nowhere is not a folder"):
        data.load(f"images:{tmp_path}/nowhere")
    (tmp_path / "flat").mkdir()
    with pytest.raises(DataError, match="no class folders"):
        data.load(f"images:{tmp_path}/flat")
    root = make_images()
    (root / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty has no images"):
        data.load(f"images:{root}")
    with pytest.raises(DataError, match="none is left for testing"):
        data.load(f"images:{make_images(classes=('one',), count=1, below='single')}")


def test_pixels_are_normalised_when_prepared(make_images):
    photos = data.load(f"images:{make_images()}?size=16:4")
    assert len(photos.train) == 4
    x, _ = photos.prepare(torch.full((2, 3, 16, 16), 255, dtype=torch.uint8), torch.zeros(2))
    assert np.allclose(x[0, :, 0, 0], [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225], atol=1e-5)


def test_a_data_set_travels_to_another_process(make_images):
    photos = data.load(f"images:{make_images()}?size=16")
    photos.prepare(torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.zeros(1))
    copy = pickle.loads(pickle.dumps(photos))
    assert copy.prepare == photos.prepare and copy.train.paths[3] == photos.train.paths[3]
