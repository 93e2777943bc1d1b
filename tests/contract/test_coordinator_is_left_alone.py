"""Only the coordinator changes what it knows: no driver assigns to it, or to workers and groups that it keeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline

ROOT = Path(paceline.__file__).parent
KEPT = {"members", "groups", "rounds", "ledger", "batches"}
"""What a coordinator keeps, as attributes of it."""
CHANGING = {"append", "add", "remove", "pop", "clear", "update", "extend", "discard", "setdefault", "popleft"}


def of_coordinator(node: ast.AST, names: set[str]) -> bool:
    """`x.coordinator...`, `coordinator...`, and names that were obtained from one."""
    if isinstance(node, ast.Attribute):
        return node.attr == "coordinator" or of_coordinator(node.value, names)
    if isinstance(node, ast.Subscript):
        return of_coordinator(node.value, names)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "get", "items") and of_coordinator(
            node.func.value, names
        )  # fmt: skip
    return isinstance(node, ast.Name) and node.id in names


def keeps(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is a part of a coordinator, not a plain value read from it."""
    if isinstance(node, ast.Name | ast.Call):
        return of_coordinator(node, names)
    if isinstance(node, ast.Attribute):
        return node.attr in KEPT | {"coordinator", "group"} and of_coordinator(node, names)
    return isinstance(node, ast.Subscript) and of_coordinator(node, names)


def obtained(function: ast.AST) -> set[str]:
    """Names in a function that stand for a coordinator or for a part of it."""
    names = {"coordinator"}
    for _ in range(3):  # a name from a name from a coordinator
        for node in ast.walk(function):
            pairs: list[tuple[ast.AST, ast.AST]] = []
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                    pairs += zip(target.elts, node.value.elts, strict=False) if both else [(target, node.value)]
            elif isinstance(node, ast.For | ast.comprehension):
                targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
                pairs += [(target, node.iter) for target in targets]
            names |= {target.id for target, value in pairs if isinstance(target, ast.Name) and keeps(value, names)}
    return names


def violations(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] or [tree]
    for function in functions:
        names = obtained(function)
        for node in ast.walk(function):
            targets: list[ast.AST] = []
            if isinstance(node, ast.Assign | ast.Delete):
                targets = [t for one in node.targets for t in (one.elts if isinstance(one, ast.Tuple) else [one])]
            elif isinstance(node, ast.AugAssign | ast.AnnAssign):
                targets = [node.target]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
                targets = [ast.Attribute(node.func.value, node.func.attr)]
            for target in targets:
                if isinstance(target, ast.Attribute | ast.Subscript) and of_coordinator(target.value, names):
                    yield f"line {node.lineno}: {ast.unparse(node)}"


ROOMS = ("training", "simulation")
MODULES = sorted(str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_no_driver_changes_a_coordinator(module):
    assert list(violations((ROOT / module).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(self): self.coordinator.version = 3",
        "def f(self): self.engine.coordinator.ledger.refused += 1",
        "def f(self): self.coordinator.members[0].ahead = 2",
        "def f(coordinator): coordinator.groups[1].clock = 5",
        "def f(self):\n    member = self.coordinator.members[0]\n    member.steps = 1",
        "def f(self):\n    for group in self.coordinator.groups.values():\n        group.planned -= 1",
        "def f(self):\n    memory, coordinator = self.memory, self.server.coordinator\n    coordinator.issued = 1",
        "def f(self): del self.coordinator.members[1].tasks[4]",
        "def f(self): self.coordinator.members[1].tasks.clear()",
        "def f(self): self.coordinator.batches.done[0][3] = 1",
    ],
)
def test_what_changes_one_is_found(source):
    assert len(set(violations(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def f(self): self.coordinator = Coordinator()",
        "def f(self): self.coordinator.set_ahead(0, 2)",
        "def f(self):\n    version = self.coordinator.version\n    version += 1",
        "def f(self): self.seen[self.coordinator.version] = 1",
        "def f(self):\n    members = {}\n    members[0] = self.coordinator.alive",
    ],
)
def test_what_does_not_is_not(source):
    assert list(violations(source)) == []
