"""A training loop as a user writes it, run with one tool or with none; a process of its own, for `benchmarks.overhead`.

It writes the seconds from the line before the tool is built to the line after its result is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.own_networks import Mixer, SmallMobile
from benchmarks.step_loop import synchronise

NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {"mobile": (SmallMobile, 64), "mixer": (Mixer, 32)}
"""With their batch on a CPU; on a GPU it is eight times as large."""
Batches = Iterable[tuple[Tensor, Tensor]]
Loop = tuple[Batches, Callable[[], AbstractContextManager[object]], Callable[[], None]]
"""The batches, what is around an iteration, and what comes after it."""


def _nothing() -> None:
    pass


@contextmanager
def bare(model: nn.Module, batches: Batches) -> Iterator[Loop]:
    yield batches, nullcontext, _nothing


@contextmanager
def layer_clock(model: nn.Module, batches: Batches) -> Iterator[Loop]:
    import paceline

    with paceline.LayerClock(model) as clock:
        yield clock.batches(batches), nullcontext, _nothing
    clock.measurement("own loop").table()


@contextmanager
def profiler(model: nn.Module, batches: Batches) -> Iterator[Loop]:
    """Two of fifty iterations, as its schedule is for."""
    from torch.profiler import profile, schedule

    with profile(schedule=schedule(wait=47, warmup=1, active=2)) as profiling:
        yield batches, nullcontext, profiling.step
    profiling.key_averages().table(row_limit=20)


@contextmanager
def profiler_always(model: nn.Module, batches: Batches) -> Iterator[Loop]:
    from torch.profiler import profile

    with profile() as profiling:
        yield batches, nullcontext, profiling.step
    profiling.key_averages().table(row_limit=20)


@contextmanager
def traceml(model: nn.Module, batches: Batches) -> Iterator[Loop]:
    import traceml_ai  # type: ignore[import-not-found]

    traceml_ai.init(mode="auto")
    yield batches, lambda: traceml_ai.trace_step(model), _nothing


WAYS = {
    "bare": bare, "LayerClock": layer_clock, "torch.profiler, 2 of 50": profiler,
    "torch.profiler, always": profiler_always, "TraceML": traceml,
}  # fmt: skip


def train(way: str, network: str, iterations: int, device: torch.device) -> float:
    """In bfloat16 on a GPU; the seconds, with the tool's own beginning and end."""
    torch.manual_seed(0)
    make, batch = NETWORKS[network]
    batch *= 8 if device.type == "cuda" else 1
    model = make().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    few = [(torch.randn(batch, 3, 32, 32, device=device), torch.randint(10, (batch,), device=device)) for _ in range(8)]
    batches = (few[number % len(few)] for number in range(iterations))
    synchronise(device)
    start_s = perf_counter()
    with WAYS[way](model, batches) as (given, around, after):
        for x, y in given:
            with around(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            after()
        synchronise(device)
    return perf_counter() - start_s


if __name__ == "__main__":
    way, network, iterations, device, threads, out = sys.argv[1:]
    torch.set_num_threads(int(threads))
    Path(out).write_text(str(train(way, network, int(iterations), torch.device(device))))
