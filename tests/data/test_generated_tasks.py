"""The adding task and trees of logic: their labels are right, and a seed is not needed to have them again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline import data
from paceline.data.logic import TOKENS
from paceline.errors import DataError


def value(tree: list[int], place: int = 0) -> bool:
    """What Python makes of an expression."""
    token = TOKENS[tree[place]]
    if token in ("true", "false"):
        return token == "true"
    left = value(tree, 2 * place + 1)
    if token == "not":
        assert tree[2 * place + 2] == 0, "not has one child"
        return not left
    right = value(tree, 2 * place + 2)
    return {"and": left and right, "or": left or right, "xor": left != right}[token]


def test_a_marked_digit_of_each_half_gives_the_sum():
    made = data.load("adding:100:400")
    assert (made.kind, made.shape, len(made.train), len(made.test)) == ("image", (1, 100, 2), 400, 100)
    x, y = made.prepare(made.train.x, made.train.y)
    digits, marks = (4 * x[:, 0, :, 0]).round(), x[:, 0, :, 1]
    assert torch.equal(marks[:, :50].sum(1), torch.ones(400)) and torch.equal(marks[:, 50:].sum(1), torch.ones(400))
    assert torch.equal((digits * marks).sum(1).long(), y) and set(digits.unique().tolist()) == {0, 1, 2, 3, 4}
    assert len(made.classes) == 9 and set(y.tolist()) == set(range(9))


def test_a_tree_has_the_value_that_it_is_labelled_with():
    made = data.load("logic:4:301")
    assert (made.kind, made.shape, made.classes, len(made.test)) == ("tree", (31,), ("false", "true"), 75)
    x, y = made.prepare(made.train.x, made.train.y)
    assert [value(tree) for tree in x.tolist()] == y.bool().tolist()
    assert x.dtype == torch.int64 and y[:4].tolist() == [0, 1, 0, 1] and set(x.unique().tolist()) == set(range(7))
    assert (x[:, 0] >= TOKENS.index("not")).all(), "every tree begins with an operator"
    children = x[:, 1:].unflatten(1, (-1, 2)).ne(0)
    assert torch.equal(children.any(2), x[:, :15].ge(TOKENS.index("not"))), "operators, and they alone, have children"


@pytest.mark.parametrize("source", ["adding:20:50", "logic:3:50"])
def test_generated_samples_are_always_the_same_and_those_for_testing_are_others(source: str):
    one, other = data.load(source), data.load(source)
    assert torch.equal(one.train.x, other.train.x) and torch.equal(one.test.y, other.test.y)
    assert not torch.equal(one.train.x[: len(one.test)], one.test.x)


def test_trees_for_testing_are_not_among_those_for_training():
    made = data.load("logic:3:3000")
    known = {bytes(tree) for tree in made.train.x.numpy()}
    assert not any(bytes(tree) in known for tree in made.test.x.numpy())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("adding:", "length is missing; write adding:LENGTH"),
        ("adding:x", "the length x must be a whole number from 2"),
        ("adding:1", "from 2 to 100,000"),
        ("logic:2", "the depth 2 must be a whole number from 3 to 12"),
        ("logic:5?size=3", "unknown option 'size'"),
        ("adding:100000:100000000", "use fewer or smaller samples"),
    ],
)
def test_what_is_wrong_with_a_task_is_said(source: str, said: str, tmp_path: Path):
    with pytest.raises(DataError, match=said) as raised:
        data.load(source, cache=tmp_path)
    assert "\n" not in str(raised.value)
