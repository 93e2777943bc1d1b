"""Each algorithm once more in a few lines, straight from its formula and with autograd; the product must agree.

Workers here have speeds whose steps never end at the same moment, so the order of events can be told by hand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.strategy.presets import find_strategy
from tests.contract.small_training import difference, parts, start, trained

SPEEDS = (1.0, 0.73, 0.41)
CLUSTER = VirtualCluster(speeds=SPEEDS)
RATE, WORKERS = 0.05, len(SPEEDS)


class Problem:
    """The small workload's batches in their order, and the gradient of flat weights on one of them."""

    def __init__(self) -> None:
        made = parts()
        order = made.feeder.order.permutation(0)
        self.batches = [(made.dataset.train.x[i].flatten(1), made.dataset.train.y[i]) for i in order.split(8)]
        self.shapes = [p.shape for p in made.network.parameters()]

    def gradient(self, w: Tensor, number: int) -> Tensor:
        w = w.clone().requires_grad_()
        w1, b1, w2, b2 = (
            piece.view(shape)
            for piece, shape in zip(w.split([s.numel() for s in self.shapes]), self.shapes, strict=True)
        )
        x, y = self.batches[number]
        F.cross_entropy(torch.tanh(x @ w1.t() + b1) @ w2.t() + b2, y).backward()
        return w.grad


def asynchronous(problem: Problem, update: Callable[[int, Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Every worker: pull, compute for its time, push; `update(worker, w, w_bak, g)` is the server's."""
    w, todo = start(), list(range(len(problem.batches)))[::-1]
    events = [(1 / speed, m, w, todo.pop()) for m, speed in enumerate(SPEEDS)]
    heapq.heapify(events)
    while events:
        now, m, pulled, batch = heapq.heappop(events)
        w = update(m, w, pulled, problem.gradient(pulled, batch))
        if todo:
            heapq.heappush(events, (now + 1 / SPEEDS[m], m, w, todo.pop()))
    return w


def test_downpour():
    expected = asynchronous(Problem(), lambda m, w, bak, g: w - RATE * g)
    assert difference(trained(find_strategy("downpour"), WORKERS, CLUSTER).parameters, expected) <= 1e-5


def test_delay_compensation_constant():
    expected = asynchronous(Problem(), lambda m, w, bak, g: w - RATE * (g + 2.0 * g * g * (w - bak)))
    found = trained(find_strategy("delay-compensated", correction="constant:2"), WORKERS, CLUSTER)
    assert difference(found.parameters, expected) <= 1e-5


def test_delay_compensation_adaptive():
    squares = [torch.zeros_like(start()) for _ in SPEEDS]

    def update(m: int, w: Tensor, bak: Tensor, g: Tensor) -> Tensor:
        squares[m] = 0.95 * squares[m] + 0.05 * g * g
        return w - RATE * (g + 2.0 / (squares[m] + 1e-7).sqrt() * g * g * (w - bak))

    expected = asynchronous(Problem(), update)
    assert difference(trained(find_strategy("delay-compensated"), WORKERS, CLUSTER).parameters, expected) <= 1e-5


def test_downpour_with_adagrad_at_the_server():
    total = torch.zeros_like(start())

    def update(m: int, w: Tensor, bak: Tensor, g: Tensor) -> Tensor:
        total.add_(g * g)
        return w - 0.02 * g / (total.sqrt() + 1e-10)

    expected = asynchronous(Problem(), update)
    found = trained(find_strategy("downpour", server_optimizer="adagrad:0.02"), WORKERS, CLUSTER)
    assert difference(found.parameters, expected) <= 1e-4


def test_downpour_that_fetches_and_pushes_rarely_steps_by_itself():
    """One worker: n_fetch = 4, n_push = 2, and a local step after every gradient."""
    problem, server = Problem(), start()
    local, total = server, torch.zeros_like(server)
    for step in range(len(problem.batches)):
        if step % 4 == 0:
            local = server
        g = problem.gradient(local, step)
        total = total + g
        local = local - RATE * g
        if step % 2 == 1 or step == len(problem.batches) - 1:
            server, total = server - RATE * total, torch.zeros_like(total)
    found = trained(find_strategy("downpour", fetch_every=4, push_every=2), 1, CLUSTER)
    assert difference(found.parameters, server) <= 1e-5


def test_elastic_averaging():
    """Every 10 steps: δ = α (x - x̃); x -= δ; x̃ += δ; α = 0.9 / N."""
    problem, centre, alpha = Problem(), start(), 0.9 / WORKERS
    local = [centre.clone() for _ in SPEEDS]
    todo = list(range(len(problem.batches)))

    def take(most: int) -> list[int]:
        taken, todo[:most] = todo[:most], []
        return taken

    events = [(10 / speed, m, take(10)) for m, speed in enumerate(SPEEDS)]
    heapq.heapify(events)
    while events:
        now, m, batches = heapq.heappop(events)
        for batch in batches:
            local[m] = local[m] - RATE * problem.gradient(local[m], batch)
        delta = alpha * (local[m] - centre)
        local[m], centre = local[m] - delta, centre + delta
        following = take(10)
        if following:
            heapq.heappush(events, (now + len(following) / SPEEDS[m], m, following))
    found = trained(find_strategy("easgd"), WORKERS, CLUSTER)
    assert difference(found.parameters, centre) <= 1e-5


@pytest.mark.parametrize("period", [5, 20])
def test_diloco(period):
    """H local steps, the outer gradient θ - θ_i averaged, a Nesterov step of 0.7 with momentum 0.9."""
    problem, outer = Problem(), start()
    velocity, batch, count = torch.zeros_like(outer), 0, len(problem.batches)
    while batch < count:
        steps = min(period, -(-(count - batch) // WORKERS))
        mean, present = torch.zeros_like(outer), 0
        for _ in range(WORKERS):
            mine = range(batch, min(batch + steps, count))
            if not mine:
                continue
            local, present = outer, present + 1
            for number in mine:
                local = local - RATE * problem.gradient(local, number)
            mean, batch = mean + (outer - local), mine.stop
        mean = mean / present
        velocity = 0.9 * velocity + mean
        outer = outer - 0.7 * (mean + 0.9 * velocity)
    found = trained(find_strategy("diloco", fetch_every=period, push_every=period), WORKERS, CLUSTER)
    assert difference(found.parameters, outer) <= 1e-4
