"""For any network, spans partition the iteration and every node of the backward pass has a span key."""

from __future__ import annotations

from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from paceline.measurement.mark_log import OUTSIDE, MarkLog, SpanKey
from paceline.measurement.module_marks import ModuleMarks
from paceline.networks import build
from tests.measurement.slow_layers import hooks_of, log_of

WIDTH = 3


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x) * 1.0
        y += x
        return y


class Tables(nn.Module):
    """Its inner module takes a dict by keyword and returns one."""

    class Inner(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *, table: dict[str, Tensor]) -> dict[str, tuple[Tensor, int]]:
            return {"out": (self.inner(table["in"]), 1)}

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = self.Inner(inner)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(table={"in": x})["out"][0]


class Twice(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.inner(x))


def frozen() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH).requires_grad_(False)


LEAVES = st.sampled_from(
    [
        lambda: nn.Linear(WIDTH, WIDTH),
        frozen,
        nn.ReLU,
        lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)),
        nn.Tanh,
        nn.Identity,
        lambda: nn.LayerNorm(WIDTH),
        nn.Dropout,
    ]
).map(lambda make: make())


def larger(inner: st.SearchStrategy[nn.Module]) -> st.SearchStrategy[nn.Module]:
    return st.one_of(
        inner.map(Residual),
        inner.map(Tables),
        inner.map(Twice),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: nn.Sequential(*parts)),
    )


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(body=st.recursive(LEAVES, larger, max_leaves=6), passes=st.integers(1, 2))
def test_spans_partition_the_iteration(body, passes):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), body, nn.Linear(WIDTH, WIDTH))

    def iteration() -> None:
        for _ in range(passes):
            model(torch.randn(2, WIDTH)).square().sum().backward()

    log = log_of(model, iteration)
    spans_s = log.durations_s({})
    assert sum(spans_s.values()) == pytest.approx(log.wall_s() - log.overhead_s(), abs=1e-9)
    assert min(spans_s.values()) >= 0.0
    names = {name or "Sequential" for name, _ in model.named_modules(remove_duplicate=False)}
    for part, row in spans_s:
        assert (part, row) == ("loop", "") or row in names | {OUTSIDE}
    # Only the loss is outside the model: its nodes and, first of all, the way into the engine.
    nodes = [key for kind, key, *_ in log.marks if kind == "node"]
    assert nodes.count(("backward", OUTSIDE)) == passes
    assert {"0", "2"} <= {row for _, row in nodes}
    assert hooks_of(model) == 0


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(body=st.recursive(LEAVES, larger, max_leaves=6), leaves=st.sampled_from(["all", "asked for", "some"]))
def test_marks_where_the_row_changes_say_what_marks_at_every_node_say(body, leaves):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), body, nn.Linear(WIDTH, WIDTH))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def rows(every: bool) -> list[list[SpanKey]]:
        """Those of an iteration in which the graph is searched, and of one that knows where rows change."""
        log, found = MarkLog(), []
        marks = ModuleMarks(model, lambda: log)
        marks.marks_every_node = every
        with marks.installed():
            for _ in range(2):
                log.marks.clear()
                log.mark("edge", ("forward", OUTSIDE))
                loss = model(torch.randn(2, WIDTH)).square().sum()
                if leaves == "all":
                    loss.backward()
                else:
                    torch.autograd.grad(loss, trained if leaves == "asked for" else trained[:1], allow_unused=True)
                marks.forget()
                found.append([key for kind, key, *_ in log.marks if kind == "node" or key == ("backward", OUTSIDE)])
        return found

    (few, fewer), (all_of_them, _) = rows(every=False), rows(every=True)
    assert [key for key, _ in groupby(few)] == [key for key, _ in groupby(all_of_them)]
    assert [key for key, _ in groupby(fewer)] == [key for key, _ in groupby(all_of_them)]
    assert len(few) <= len(all_of_them)


@pytest.mark.parametrize(
    ("name", "shape"), [("gru", (1, 8, 8)), ("resnet20", (1, 8, 8)), ("deconvolutional", (1, 8, 8))]
)
def test_networks_have_fewer_marks_than_nodes_and_the_same_rows(name, shape):
    model = build(name, shape=shape, classes=4).train()
    x, found = torch.rand(4, *shape), {}
    for every in (False, True):
        log = MarkLog()
        marks = ModuleMarks(model, lambda: log)  # noqa: B023
        marks.marks_every_node = every
        with marks.installed():
            log.mark("edge", ("forward", OUTSIDE))
            torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
        found[every] = [key for kind, key, *_ in log.marks if kind == "node"]
    assert [key for key, _ in groupby(found[False])] == [key for key, _ in groupby(found[True])]
    assert len(found[False]) < (0.1 if name == "gru" else 1.0) * len(found[True])
