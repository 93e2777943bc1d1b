"""Backward marks found during the forward pass are those that a search of the graph finds, or the graph is searched."""

from __future__ import annotations

from itertools import groupby

import pytest
import torch
from torch import Tensor, nn

from paceline.measurement.mark_log import OUTSIDE, MarkLog
from paceline.measurement.module_marks import ModuleMarks

X = torch.randn(2, 3)


class Watched:
    """Iterations of a model with marks, and how often the graph was searched."""

    def __init__(self, model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.searches = MarkLog(), 0
        self.marks = ModuleMarks(model, lambda: self.log)
        search = self.marks._mark_nodes

        def counted(*arguments):
            self.searches += 1
            return search(*arguments)

        monkeypatch.setattr(self.marks, "_mark_nodes", counted)

    def rows(self, iteration) -> list[str]:
        """The rows of the backward pass, in order."""
        with self.marks.installed():
            self.log.marks.clear()
            self.log.mark("edge", ("forward", OUTSIDE))
            iteration()
            self.marks.forget()
        rows = [row for _, (part, row), *_ in self.log.marks if part == "backward"]
        return [row for row, _ in groupby(rows)]


def test_a_graph_is_searched_once(monkeypatch):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)))
    watched = Watched(model, monkeypatch)
    found = [watched.rows(lambda: model(X).sum().backward()) for _ in range(3)]
    assert found[0] == found[1] == found[2] == [OUTSIDE, "2.1", "2.0", "1", "0"]
    assert watched.searches == 1


class Layers(nn.Module):
    """As many layers as `count` says; stochastic depth changes it from one iteration to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.count = nn.ModuleList(nn.Linear(3, 3) for _ in range(4)), 4

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[: self.count]:
            x = layer(x).relu()
        return x


def test_a_graph_that_changes_is_searched_again(monkeypatch):
    model = Layers()
    watched = Watched(model, monkeypatch)
    for count, searches in ((4, 1), (4, 1), (2, 2), (4, 2), (3, 3)):
        model.count = count
        rows = watched.rows(lambda: model(X).sum().backward())
        assert [row for row in rows if "." in row] == [f"layers.{i}" for i in reversed(range(count))]
        assert watched.searches == searches


class Hidden(nn.Module):
    """A layer keeps its output for a loss that skips the rest of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.first(x).relu()
        return self.second(self.kept.tanh())


def test_a_call_whose_last_result_is_not_used_is_always_searched(monkeypatch):
    model = Hidden()
    watched = Watched(model, monkeypatch)

    def iteration():
        model(X)
        model.kept.sum().backward()

    found = [watched.rows(iteration) for _ in range(3)]
    assert found[0] == found[1] == found[2] == [OUTSIDE, "Hidden", "first"]
    assert watched.searches == 3


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.hidden = nn.Embedding(5, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.hidden(self.embedding(x)) @ self.embedding.weight.T


def test_tied_weights(monkeypatch):
    model, tokens = Tied(), torch.tensor([1, 4, 2])
    watched = Watched(model, monkeypatch)
    every = Watched(model, monkeypatch)
    every.marks.marks_every_node = True
    wanted = every.rows(lambda: model(tokens).sum().backward())
    for _ in range(3):
        assert watched.rows(lambda: model(tokens).sum().backward()) == wanted


def test_two_backward_passes_of_one_iteration(monkeypatch):
    model = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.Linear(3, 3)})
    watched = Watched(model, monkeypatch)

    def iteration():
        model["one"](X).square().sum().backward()
        model["two"](X).square().sum().backward()

    found = [watched.rows(iteration) for _ in range(3)]
    assert found[0] == found[1] == found[2] == [OUTSIDE, "one", OUTSIDE, "two"]
    assert watched.searches == 2


def test_several_outputs(monkeypatch):
    """Of a recurrent layer's outputs only the state is used, which is not the last one it made."""
    model = nn.LSTM(3, 4)
    for used in (0, 1):
        watched = Watched(nn.Sequential(model), monkeypatch)
        every = Watched(nn.Sequential(model), monkeypatch)
        every.marks.marks_every_node = True

        def iteration(use=used, module=watched.marks.model):
            out, (state, _) = module(torch.randn(5, 2, 3))
            (state if use else out).sum().backward()

        def same(use=used, module=every.marks.model):
            out, (state, _) = module(torch.randn(5, 2, 3))
            (state if use else out).sum().backward()

        wanted = every.rows(same)
        for _ in range(3):
            assert watched.rows(iteration) == wanted
