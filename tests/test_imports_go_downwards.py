"""A room imports itself and the rooms below it, nothing else: the package can be read from the bottom up."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import paceline

ROOT = Path(paceline.__file__).parent

# From top to bottom.
FLOORS = (
    "cli",
    "integrations",
    "api",
    "reproduction",
    "experiment",
    "deployment",
    "reporting",
    "results",
    "advice",
    "planning",
    "testing.contract",
    "training",
    "simulation",
    "cost",
    "strategy",
    "measurement",
    "step",
    "networks",
    "data",
)
# Below all floors, each with what it may import.
GROUND = {
    "workload": {"built_in", "settings", "user_code", "unallocated", "learning_rate", "errors"},
    "built_in": set(),
    "learning_rate": {"user_code", "errors"},
    "unallocated": {"errors"},
    "settings": {"errors"},
    "given_workload": {"workload", "held_objects", "errors"},
    "user_code": {"held_objects", "errors"},
    "held_objects": {"errors"},
    "notebook": {"formatting", "held_objects", "errors"},
    "cluster": {"record", "settings", "errors"},
    "trace": {"errors"},
    "record": {"record_fields", "output_file", "errors"},
    "record_fields": {"errors"},
    "output_file": {"errors"},
    "output_directory": {"directory_lock", "errors"},
    "directory_lock": {"errors"},
    "testing": {"errors"},
    "child_environment": {"openmp_waiting"},
    "openmp_waiting": set(),
    "fork_server": {"child_environment", "errors"},
    "free_memory": set(),
    "formatting": set(),
    "trust": {"held_objects", "errors"},
    "busy_machine": set(),
    "errors": set(),
}
OUTSIDE = ("__init__", "__main__")


def allowed_from(room: str) -> set[str]:
    if room in GROUND:
        return {room} | GROUND[room]
    return {*FLOORS[FLOORS.index(room) :], *GROUND}


def room_of(module: str) -> str:
    """`paceline.step.flat` is in the room `step`; `paceline.testing.contract` is above the rooms it tests."""
    if module.startswith("paceline.testing.contract"):
        return "testing.contract"
    return module.split(".")[1] if "." in module else "__init__"


def imported_modules(source: str, module: str, is_package: bool) -> list[tuple[int, str]]:
    """(line, module) of every import of this package, wherever in the file it stands."""
    found = []
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from paceline import data` imports the module paceline.data.
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "paceline" else [base]
            found += [(node.lineno, name) for name in names]
    return [(line, name) for line, name in found if name.split(".")[0] == "paceline"]


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    room = room_of(module)
    return [
        f"{module}:{line} imports {name}"
        for line, name in imported_modules(source, module, is_package)
        if room_of(name) not in allowed_from(room)
    ]


def modules() -> list[tuple[str, Path]]:
    names = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        names.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return [(name, path) for name, path in names if room_of(name) not in OUTSIDE]


def test_every_module_is_in_a_room_of_the_plan():
    assert {room_of(name) for name, _ in modules()} <= {*FLOORS, *GROUND}


def test_imports_go_downwards_only():
    found = [
        line
        for name, path in modules()
        for line in violations(path.read_text(encoding="utf-8"), name, path.name == "__init__.py")
    ]
    assert found == []


def test_the_check_sees_the_package():
    """An empty list of modules, or imports that are not seen, would make the test above pass for nothing."""
    names = [name for name, _ in modules()]
    assert {"paceline.cli.train", "paceline.training.trainer", "paceline.errors"} <= set(names)
    source = (ROOT / "training" / "trainer.py").read_text(encoding="utf-8")
    seen = {room_of(name) for _, name in imported_modules(source, "paceline.training.trainer", False)}
    assert {"training", "step", "workload", "errors"} <= seen


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("paceline.step.flat", "from paceline.training.trainer import run"),
        ("paceline.step.flat", "import paceline.training.trainer as t"),
        ("paceline.step.flat", "from paceline import training"),
        ("paceline.step.flat", "from ..train import trainer"),
        ("paceline.step.flat", "from .. import train"),
        ("paceline.step.flat", "def f():\n    from paceline.cli.console import complain"),
        ("paceline.step.flat", "if TYPE_CHECKING:\n    from paceline.reporting.page import answer"),
        ("paceline.step.flat", "try:\n    import paceline.cli\nexcept ImportError:\n    pass"),
        ("paceline.step.flat", "from paceline import run"),
        ("paceline.record", "from paceline.trace import Trace"),
        ("paceline.errors", "from paceline.record import save"),
        ("paceline.workload", "import paceline.data"),
    ],
)
def test_an_import_upwards_is_caught(module, source):
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("paceline.step.flat", "from paceline.step.phase import Phase\nfrom paceline.data import load"),
        ("paceline.step.flat", "from . import phase\nfrom .phase import Phase\nfrom paceline import data"),
        ("paceline.step.flat", "import torch\nfrom paceline_extra.train import run"),
        ("paceline.workload", "from paceline import user_code"),
        ("paceline.cli.train", "from paceline.reporting.page import write_summary"),
    ],
)
def test_an_import_downwards_is_not(module, source):
    assert violations(source, module) == []
