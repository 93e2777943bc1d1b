"""A workload is described by a name, a file or a function, and is refused where it is made."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from paceline.built_in import BUILT_IN
from paceline.cli.options import parse_pairs
from paceline.errors import InputError, a_type
from paceline.learning_rate import Schedule, parse_schedule
from paceline.record import from_json, to_json
from paceline.workload import (
    OPTIMIZERS,
    Workload,
    resolve,
    with_settings,
)

NUMBERS = itertools.count()


def refused(action) -> str:
    with pytest.raises(InputError) as raised:
        action()
    return str(raised.value)


# Names


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_name_stands_for_its_settings(name):
    workload = resolve(name)
    assert workload == Workload(network=name, **BUILT_IN[name])


def test_settings_go_on_top_of_a_name():
    workload = resolve("lenet5", {"batch": 7, "lr": "0.5", "data": "mnist"})
    assert (workload.batch, workload.lr, workload.data) == (7, 0.5, "mnist")
    assert workload.optimizer == resolve("lenet5").optimizer


def test_an_unknown_name_is_answered_with_the_nearest():
    assert refused(lambda: resolve("lenet")).startswith("no network 'lenet': did you mean lenet5")
    assert "resnet18" in refused(lambda: resolve("resnet81"))


def test_an_unknown_name_far_from_all_lists_them():
    text = refused(lambda: resolve("qqqqqq"))
    assert text.startswith("no network 'qqqqqq': known: ") and all(name in text for name in BUILT_IN)


def test_a_script_without_its_function_says_how_to_name_it():
    assert refused(lambda: resolve("models/mine.py")).endswith("name the function too, as in mine:build")


def test_a_workload_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        resolve("mlp").batch = 3


# Files


@pytest.fixture
def toml(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "workload.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_a_file_holds_any_key(toml):
    workload = resolve(toml('network = "dnn"\nlr = 1\nbatch = 5\ndropout = 0.25\n[options]\nhidden = [8, 9]\n'))
    assert workload == with_settings(
        resolve("dnn"), {"lr": 1.0, "batch": 5, "dropout": 0.25, "options": {"hidden": [8, 9]}}
    )
    assert isinstance(workload.lr, float)


def test_settings_go_on_top_of_a_file(toml):
    workload = resolve(toml('network = "dnn"\nbatch = 5\n[options]\nhidden = 8\n'), {"batch": "6", "options.x": "true"})
    assert (workload.batch, workload.options) == (6, {"hidden": 8, "x": True})


def test_an_empty_file_is_the_default(toml):
    assert resolve(toml("")) == Workload(**BUILT_IN["mlp"])


@pytest.mark.parametrize(
    ("name", "optimizer", "lr"),
    [
        ("mlp", "momentum", 0.1), ("dnn", "sgd", 0.05), ("dnn", "adamw", 0.001), ("lenet5", "adamw", 0.002),
        ("lenet5", "sgd", 0.1), ("mlp", "adadelta", 1.0), ("mlp", "torch.optim:RAdam", 0.001),
        ("mlp", "no_such_module:Nothing", 0.1),
    ],
)  # fmt: skip
def test_an_optimizer_without_a_rate_has_one_that_suits_it(name, optimizer, lr):
    assert resolve(name, {"optimizer": optimizer}).lr == lr
    assert resolve(name, {"optimizer": optimizer, "lr": 0.5}).lr == 0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bacth = 3", "no key 'bacth' in a workload: did you mean batch?"),
        ("[training]\nlr = 0.1", "no key 'training' in a workload"),
        ("batch = 1.5", "batch=1.5 should be a whole number"),
        ("batch = true", "batch=True should be a whole number"),
        ("batch = [3]", "batch=[3] should be a whole number"),
        ("lr = false", "lr=False should be a number"),
        ("data = 3", "data=3 should be text"),
        ("options = 3", "options=3 should be a table"),
        ('network = "lenet"', "no network 'lenet': did you mean lenet5"),
        ('network = ["mlp"]', "network=['mlp'] should be text"),
        ("lr = nan", "lr=nan is not a finite number"),
        ("lr = ", "not valid TOML: "),
        ("lr", "not valid TOML: "),
    ],
)
def test_a_file_with_a_mistake_is_refused(toml, text, expected):
    found = refused(lambda: resolve(toml(text)))
    assert expected in found and "\n" not in found and ("workload.toml: " in found or "no network" in expected)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    assert refused(lambda: resolve(str(tmp_path / "none.toml"))) == f"{tmp_path / 'none.toml'}: no such file"
    (tmp_path / "folder.toml").mkdir()
    assert "cannot be read" in refused(lambda: resolve(str(tmp_path / "folder.toml")))
    (tmp_path / "latin.toml").write_bytes(b'data = "\xe9"')
    assert "not valid TOML" in refused(lambda: resolve(str(tmp_path / "latin.toml")))


# KEY=VALUE


def test_pairs_become_a_table():
    assert parse_pairs(["lr=0.1", " data = a=b ", "lr=0.2"]) == {"lr": "0.2", "data": "a=b"}


@pytest.mark.parametrize("pair", ["lr", "=3", "  =3", ""])
def test_a_word_that_is_no_pair_is_refused(pair):
    assert refused(lambda: parse_pairs([pair])) == f"--set {pair!r} should be KEY=VALUE"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("batch", "12", 12),
        ("lr", "1e-3", 1e-3),
        ("dropout", "0.5", 0.5),
        ("dropout", "none", None),
        ("betas", "[0.8, 0.99]", (0.8, 0.99)),
        ("betas", "0,0.99", (0.0, 0.99)),
        ("eps", "default", None),
        ("clip_norm", "1", 1.0),
        ("activation", "default", None),
        ("activation", "tanh", "tanh"),
        ("data", "12", "12"),
    ],
)
def test_text_is_read_as_the_type_of_its_key(key, text, value):
    found = getattr(with_settings(Workload(), {key: text}), key)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "kind"),
    [
        ("batch", "many", "a whole number from 1 to 2,147,483,647"),
        ("batch", "1.5", "a whole number from 1 to 2,147,483,647"),
        ("lr", "fast", "a number above 0"),
        ("dropout", "half", "a number of at least 0 and below 1"),
        ("betas", "high", "two numbers of at least 0 and below 1, e.g. [0.9, 0.999]"),
        ("options", "hidden", "a table"),
    ],
)
def test_text_of_another_type_is_refused(key, text, kind):
    written = text if text == "1.5" else repr(text)
    assert refused(lambda: resolve("mlp", {key: text})) == f"{key}={written} should be {kind}"


@pytest.mark.parametrize(
    ("text", "value"),
    [("128", 128), ("false", False), ("0.5", 0.5), ("[64, 32]", [64, 32]), ('"7"', "7"), ("plain", "plain")],
)
def test_options_are_read_as_what_they_look_like(text, value):
    found = resolve("mlp", {"options.hidden": text}).options["hidden"]
    assert found == value and type(found) is type(value)


def test_options_add_up():
    first = resolve("mlp", {"options.a": "1", "options.b": "2"})
    assert with_settings(first, {"options.b": "3", "options.c": 4}).options == {"a": 1, "b": 3, "c": 4}
    assert first.options == {"a": 1, "b": 2}


def test_an_unknown_key_is_answered_with_the_nearest():
    assert refused(lambda: resolve("mlp", {"learning_rate": "1"})).endswith(": did you mean lr?")
    assert refused(lambda: resolve("mlp", {"epohcs": "1"})).endswith(": did you mean epochs?")
    assert "did you mean epochs" in refused(lambda: resolve("mlp", {"epoch": "1"}))
    assert refused(lambda: resolve("mlp", {"options.": "1"})).startswith("no key 'options.'")


# Values


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("loss", "crossentropy", "loss 'crossentropy' is unknown: did you mean cross-entropy"),
        ("optimizer", "adm", "optimizer 'adm' is unknown: did you mean adam"),
        ("precision", "float8", "precision 'float8' is unknown"),
        ("activation", "rel", "activation 'rel' is unknown: did you mean relu?"),
        ("lr", 0.0, "lr=0.0 should be a number above 0"),
        ("lr", -0.1, "lr=-0.1 should be a number above 0"),
        ("lr", float("nan"), "lr=nan is not a finite number"),
        ("lr", float("inf"), "lr=inf is not a finite number"),
        ("l1", -1.0, "l1=-1.0 should be a number of at least 0"),
        ("l2", -1.0, "l2=-1.0 should be a number of at least 0"),
        ("l2", float("nan"), "l2=nan is not a finite number"),
        ("momentum", 1.0, "momentum=1.0 should be a number of at least 0 and below 1"),
        ("momentum", float("nan"), "momentum=nan is not a finite number"),
        ("betas", (0.9, 1.0), "betas=(0.9, 1.0) should be two numbers of at least 0 and below 1, e.g. [0.9, 0.999]"),
        (
            "betas",
            (0.9, float("inf")),
            "betas=(0.9, inf) should be two numbers of at least 0 and below 1, e.g. [0.9, 0.999]",
        ),
        ("betas", [0.9], "betas=[0.9] should be two numbers of at least 0 and below 1, e.g. [0.9, 0.999]"),
        ("betas", [0.9, True], "betas=[0.9, True] should be two numbers of at least 0 and below 1, e.g. [0.9, 0.999]"),
        ("betas", 0.9, "betas=0.9 should be two numbers of at least 0 and below 1, e.g. [0.9, 0.999]"),
        ("eps", 0.0, "eps=0.0 should be a number above 0"),
        ("weight_decay", 0.1, "weight_decay=0.1 is for optimizer adamw, not sgd; set l2 instead"),
        ("weight_decay", -0.1, "weight_decay=-0.1 should be a number of at least 0"),
        ("clip_norm", -1.0, "clip_norm=-1.0 should be a number of at least 0"),
        ("clip_norm", float("inf"), "clip_norm=inf is not a finite number"),
        ("dropout", 1.0, "dropout=1.0 should be a number of at least 0 and below 1"),
        ("dropout", -0.5, "dropout=-0.5 should be a number of at least 0 and below 1"),
        ("batch", 0, "batch=0 should be a whole number from 1 to 2,147,483,647"),
        ("epochs", 0, "epochs=0 should be a whole number from 1 to 1,000,000"),
        ("threads", -1, "threads=-1 should be a whole number of at least 0"),
        ("seed", -1, "seed=-1 should be a whole number from 0 to"),
        ("seed", 2**63, "should be a whole number from 0 to 9,223,372,036,854,775,807"),
        ("top", 0, "top=0 should be a whole number of at least 1"),
        ("schedule", "sine", "schedule 'sine'"),
        ("device", "gpu", "device 'gpu' is not one of auto, cpu, cuda, cuda:N"),
        ("device", "cuda:", "device 'cuda:' is not one of"),
        ("device", "cuda:x", "device 'cuda:x' is not one of"),
        ("device", "cuda:-1", "device 'cuda:-1' is not one of"),
        ("device", "cuda:²", "device 'cuda:²' is not one of"),
        ("device", "auto:0", "device 'auto:0' is not one of"),
        ("network", 3, "network=3 should be text"),
        ("options", [], "options=[] should be a table"),
        ("seed", None, "seed=None should be a whole number"),
    ],
)
def test_a_value_that_cannot_be_is_refused(key, value, expected):
    found = refused(lambda: Workload(**{key: value}))
    assert expected in found and "\n" not in found


@pytest.mark.parametrize(
    ("key", "value"),
    [("device", "cuda:12"), ("dropout", 0.0), ("dropout", None), ("lr", 1), ("seed", 2**63 - 1), ("l1", 0)],
)
def test_a_value_at_the_edge_is_taken(key, value):
    assert getattr(Workload(**{key: value}), key) == value


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_listed_is_taken(optimizer):
    assert Workload(optimizer=optimizer).optimizer == optimizer


def test_nesterov_needs_a_momentum():
    text = refused(lambda: Workload(optimizer="nesterov", momentum=0.0))
    assert text == "momentum=0 should be above 0 for nesterov; use optimizer sgd to train without momentum"
    assert Workload(optimizer="momentum", momentum=0).momentum == 0.0


def test_adamw_decays_weights_in_place_of_a_built_in_l2(toml):
    assert (resolve("dnn").l2, resolve("dnn", {"optimizer": "adamw"}).l2) == (1e-5, 0.0)
    assert resolve("dnn", {"optimizer": "adamw", "l2": 1e-3}).l2 == 1e-3
    workload = resolve(toml('optimizer = "adamw"\nweight_decay = 0.1\nbetas = [0, 0.95]\n'))
    assert (workload.weight_decay, workload.betas) == (0.1, (0.0, 0.95))


def test_a_record_keeps_the_constants_and_may_lack_them():
    workload = Workload(optimizer="adamw", betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1, clip_norm=2.0)
    saved = json.loads(json.dumps(to_json(workload)))
    assert from_json(Workload, saved, "workload") == workload
    older = {key: saved[key] for key in ("network", "optimizer", "lr")}
    assert from_json(Workload, older, "workload") == Workload(optimizer="adamw")


# Schedules


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("constant", Schedule()),
        ("cosine", Schedule("cosine")),
        ("step", Schedule("step", every=30, factor=0.1)),
        ("step:5", Schedule("step", every=5, factor=0.1)),
        ("step:5:0.5", Schedule("step", every=5, factor=0.5)),
        ("warm-up", Schedule(warm_up=1)),
        ("warm-up:0.2+cosine", Schedule("cosine", warm_up=0.2)),
        ("warm-up:3+step:10:0.3", Schedule("step", warm_up=3, every=10, factor=0.3)),
    ],
)
def test_a_schedule_is_read(text, schedule):
    assert parse_schedule(text) == schedule


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "'' is none of constant, cosine"),
        ("linear", "'linear' is none of"),
        ("cosine:3", "'cosine:3' is none of"),
        ("step:1:2:3", "'step:1:2:3' is none of"),
        ("warm-up:1:2", "'warm-up:1:2' is none of"),
        ("cosine+", "'' is none of"),
        ("step:x", "'step:x' should be NAME:NUMBER"),
        ("step:", "'step:' should be NAME:NUMBER"),
        ("step:0", "'step:0' needs numbers above 0"),
        ("step:5:-1", "'step:5:-1' needs numbers above 0"),
        ("warm-up:nan", "'warm-up:nan' needs numbers above 0"),
        ("warm-up:inf+cosine", "'warm-up:inf' needs numbers above 0"),
    ],
)
def test_a_schedule_with_a_mistake_names_the_part(text, expected):
    assert expected in refused(lambda: parse_schedule(text))


# Functions of the user's own


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(source: str) -> str:
        name = f"users_workload_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        return name

    return write


def test_a_function_may_return_a_network(module):
    place = module("from torch import nn\ndef build():\n    return nn.Linear(2, 2)\n") + ":build"
    assert resolve(place, {"batch": "3"}) == Workload(network=place, batch=3)


def test_a_function_may_return_a_workload(module):
    place = module("import paceline\ndef make():\n    return paceline.Workload(batch=9, lr=0.3)\n") + ":make"
    assert resolve(place, {"lr": "0.7"}) == Workload(batch=9, lr=0.7)


@pytest.mark.parametrize("value", ["3", "None", "{'batch': 3}"])
def test_a_function_that_returns_something_else_is_refused(module, value):
    place = module(f"def make():\n    return {value}\n") + ":make"
    kind = a_type(eval(value))
    assert refused(lambda: resolve(place)) == (f"{place} returned {kind}; it should return an nn.Module or a Workload")


def test_a_file_may_name_a_function(module, toml):
    place = module("from torch import nn\ndef build():\n    return nn.Linear(2, 2)\n") + ":build"
    assert resolve(toml(f'network = "{place}"\nbatch = 4\n')) == Workload(network=place, batch=4)


def test_a_built_in_schedule_goes_with_its_optimizer():
    assert resolve("dnn").schedule == "cosine"
    assert resolve("dnn", {"lr": 0.1}).schedule == "cosine"
    assert resolve("dnn", {"optimizer": "momentum"}).schedule == "cosine"
    assert resolve("dnn", {"optimizer": "sgd", "lr": 0.1}).schedule == "constant"
    assert resolve("dnn", {"optimizer": "sgd", "schedule": "cosine"}).schedule == "cosine"
