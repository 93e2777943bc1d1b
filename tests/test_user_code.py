"""A user's `module:function` is found; a script that trains when imported is told what to guard."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
import torch

from paceline import user_code
from paceline.errors import DataError, WorkloadError

NUMBERS = itertools.count()
GUARD = 'under: if __name__ == "__main__":'


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a module into the current directory and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    written = []

    def write(source: str) -> str:
        name = f"users_script_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        written.append(name)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)


def message(place: str) -> str:
    with pytest.raises(WorkloadError) as raised:
        user_code.find(place)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_a_function_in_the_current_directory_is_found(module):
    name = module("def build():\n    return 3\n")
    assert user_code.find(f"{name}:build")() == 3
    assert user_code.call(f"{name}:build") == 3


def test_the_name_of_the_file_will_do(module):
    name = module("def build():\n    return 3\n")
    assert user_code.call(f"{name}.py:build") == 3


def test_an_attribute_of_a_class_is_found(module):
    name = module("class Nets:\n    @staticmethod\n    def small(width):\n        return width\n")
    assert user_code.call(f"{name}:Nets.small", 7) == 7


@pytest.mark.parametrize("place", ["module", ":function", "module:"])
def test_a_place_needs_both_parts(place):
    assert message(place) == f"{place!r} should be module:function"


def test_a_module_that_is_not_there(module):
    module("")
    text = message("not_there_at_all:build")
    assert "no module 'not_there_at_all'" in text and str(Path.cwd()) in text


def test_a_function_that_is_not_there(module):
    name = module("")
    assert message(f"{name}:build") == f"module {name} has no 'build'"


def test_a_module_that_needs_another_one(module):
    name = module("import a_package_nobody_has\n")
    assert message(f"{name}:build") == f"importing {name} failed: no module 'a_package_nobody_has'"


@pytest.mark.parametrize(
    ("source", "reason"),
    [("1 / 0\n", "ZeroDivisionError: division by zero"), ("def build(:\n", "SyntaxError: ")],
)
def test_a_module_that_fails_says_how(module, source, reason):
    name = module(source)
    assert message(f"{name}:build").startswith(f"importing {name} failed: {reason}")


TRAINS = "import torch\nw = torch.ones(3, requires_grad=True)\n"


@pytest.mark.parametrize(
    "training",
    [
        "w.sum().backward()\n",
        "torch.autograd.backward(w.sum())\n",
        "try:\n    w.sum().backward()\nexcept Exception:\n    pass\n",
    ],
)
def test_a_script_that_trains_when_imported_is_stopped(module, training):
    name = module(TRAINS + training + "def build():\n    return torch.nn.Linear(2, 2)\n")
    assert message(f"{name}:build").startswith(f"importing {name} starts training; ")
    assert message(f"{name}:build").endswith(GUARD)


def test_a_script_that_trains_with_paceline_when_imported_is_stopped(module):
    name = module("import paceline\npaceline.train(paceline.resolve('mlp'))\n")
    text = message(f"{name}:build")
    assert text.startswith(f"importing {name} starts training") and text.endswith(GUARD)


@pytest.mark.parametrize("code", ["", "0", "3"])
def test_a_script_that_ends_the_program_is_stopped(module, code):
    name = module(f"import sys\nsys.exit({code})\n")
    text = message(f"{name}:build")
    assert text.startswith(f"importing {name} ends the program (exit {code or None})") and text.endswith(GUARD)


def test_a_guarded_script_is_not(module):
    name = module(TRAINS + "def build():\n    return 3\nif __name__ == '__main__':\n    w.sum().backward()\n")
    assert user_code.call(f"{name}:build") == 3


def test_training_works_again_afterwards(module):
    message(module(TRAINS + "w.sum().backward()\n") + ":build")
    w = torch.ones(3, requires_grad=True)
    w.sum().backward()
    assert w.grad is not None and user_code.importing() is None


def test_what_is_called_must_be_a_function(module):
    name = module("build = 3\n")
    with pytest.raises(WorkloadError, match=f"{name}:build is an int, not a function"):
        user_code.call(f"{name}:build")


def test_a_function_that_fails_says_how(module):
    name = module("def build():\n    raise RuntimeError('no such layer')\n")
    with pytest.raises(WorkloadError, match=f"{name}:build failed: RuntimeError: no such layer"):
        user_code.call(f"{name}:build")


def test_a_function_that_ends_the_program_is_stopped(module):
    name = module("import sys\ndef build():\n    sys.exit(0)\n")
    with pytest.raises(WorkloadError, match=rf"{name}:build ends the program \(exit 0\)"):
        user_code.call(f"{name}:build")


def test_our_own_errors_pass_as_they_are(module):
    name = module("from paceline.errors import DataError\ndef build():\n    raise DataError('mine')\n")
    with pytest.raises(DataError, match=r"^mine$"):
        user_code.call(f"{name}:build")
