"""No code branches on what a strategy or an exchange is called: fields and objects say what it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline
from paceline.strategy.exchange import _built_in
from paceline.strategy.presets import PRESETS

ROOT = Path(paceline.__file__).parent
ROOMS = ("strategy", "training", "simulation", "planning", "cost")
NAMES = {*PRESETS, *_built_in()}
ALLOWED = {"strategy/presets.py"}
"""Where a name becomes a strategy."""
TABLES = {"strategy/exchange.py": "_built_in", "strategy/correction.py": "_built_in"}
"""Where a name becomes an object."""
OF_A_STRATEGY = ("name", "exchange")
"""Attributes that hold such a name."""


def names_in(node: ast.AST) -> set[str]:
    """The text of a literal, or the texts of a literal collection."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value.partition(":")[0]} & NAMES
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return set().union(*map(names_in, node.elts))
    if isinstance(node, ast.Dict):
        return set().union(*(names_in(key) for key in node.keys if key is not None))
    return set()


def of_a_strategy(node: ast.AST) -> bool:
    """`strategy.name`, `self.strategy.exchange` and the like, also where a part of the text is taken."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return of_a_strategy(node.func.value)
    if isinstance(node, ast.Subscript):
        return of_a_strategy(node.value)
    return (
        isinstance(node, ast.Attribute)
        and node.attr in OF_A_STRATEGY
        and any(word in ast.unparse(node.value) for word in ("strategy", "base"))
    )


def violations(source: str) -> list[str]:
    return [f"line {line}: {what}" for line, what in _violations(ast.parse(source))]


def _violations(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if found := set().union(*map(names_in, sides)):
                yield node.lineno, f"compares with {sorted(found)}"
            elif any(map(of_a_strategy, sides)):
                yield node.lineno, f"compares {ast.unparse(node)}"
        elif isinstance(node, ast.MatchValue) and names_in(node.value):
            yield node.lineno, f"matches {ast.unparse(node.value)}"
        elif isinstance(node, ast.Dict) and names_in(node):
            yield node.lineno, f"is a table by {sorted(names_in(node))}"
        elif (key := looked_up(node)) is not None and (names_in(key) or of_a_strategy(key)):
            yield node.lineno, f"looks up {ast.unparse(node)}"


def looked_up(node: ast.AST) -> ast.AST | None:
    """The key of `table[key]` and of `table.get(key)`."""
    if isinstance(node, ast.Subscript):
        return node.slice
    is_get = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
    return node.args[0] if is_get and node.args else None


def modules() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def without(tree: ast.Module, function: str | None) -> ast.Module:
    body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == function)]
    return ast.Module(body, tree.type_ignores)


@pytest.mark.parametrize("module", [module for module in modules() if module not in ALLOWED])
def test_no_module_asks_for_a_name(module):
    tree = without(ast.parse((ROOT / module).read_text(encoding="utf-8")), TABLES.get(module))
    assert [f"{module}:{line} {what}" for line, what in _violations(tree)] == []


@pytest.mark.parametrize(
    "source",
    [
        'if strategy.name == "sync": pass',
        'if name in ("mixed", "backup"): pass',
        'direct = self.exchange != "gradient"',
        'match name:\n    case "downpour":\n        pass',
        'STATES = {"easgd": 1}',
        'found = PRESETS["sync"]',
        "found = TABLE[strategy.name]",
        "found = TABLE.get(self.strategy.name)",
        'if strategy.exchange.partition(":")[0] in known: pass',
        'if text == "topk:0.01": pass',
    ],
)
def test_what_asks_for_a_name_is_found(source):
    assert len(violations(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        'strategy = find_strategy("sync")',
        "if strategy.is_synchronous: pass",
        'STRATEGIES = ("sync", "downpour")',
        'raise StrategyError("use mixed")',
        "if strategy.groups == 1: pass",
        'if rule.optimizer in ("sgd", "momentum"): pass',
    ],
)
def test_what_does_not_is_not(source):
    assert violations(source) == []
