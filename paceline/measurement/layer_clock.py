"""The layer clock for a custom training loop, in three lines.

with paceline.LayerClock(model, optimizer) as clock:
    for x, y in clock.batches(loader):
        ...                     # forward, loss.backward(), optimizer.step(), as always
        clock.step()
print(clock.measurement())
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from paceline.errors import InputError
from paceline.measurement.gpu_session import GpuSession
from paceline.measurement.mark_cost import mark_cost_s
from paceline.measurement.mark_log import OUTSIDE, MarkLog, mark_around
from paceline.measurement.measurement import Measurement
from paceline.measurement.memory import peak_memory_bytes
from paceline.measurement.module_marks import check_supported
from paceline.measurement.rates import device_rates
from paceline.measurement.session import SAMPLE_EVERY, WARM_UP, Session
from paceline.measurement.summary import summarise
from paceline.step.placement import device_name

T = TypeVar("T")


class LayerClock:
    """Measures every layer's forward and backward time in a sample of a loop's iterations."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        every: int = SAMPLE_EVERY,
        warm_up: int = WARM_UP,
    ) -> None:
        if every < 2 or warm_up < 0:
            raise InputError(f"every={every} should be at least 2 and warm_up={warm_up} at least 0")
        check_supported()
        self.model, self.optimizer = model, optimizer
        self.device = _device_of(model)
        self.session = self._session(every, warm_up)
        self.session.extra_marks.append(self._around_update)
        self.batch = 0
        self._handed_out = False
        self._closed = False

    def _session(self, every: int, warm_up: int) -> Session:
        if self.device.type == "cpu":
            return Session(self.model, mark_cost_s(), every, warm_up)
        if self.device.type != "cuda":
            raise InputError(f"the layer clock supports CPU and CUDA devices; the model is on {self.device}")
        return GpuSession(self.model, self.device, every=every)

    def __enter__(self) -> LayerClock:
        self.session.first_key = ("forward", OUTSIDE)
        self.session.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.session.close()
        self._closed = True

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Yields the loader's batches; the time spent waiting for them counts as loading."""
        self._check_stepped()
        self.session.begin()
        self.session.mark(("load", ""))
        source = iter(loader)
        while True:
            self._check_stepped()
            self.session.mark(("load", ""))
            try:
                batch = next(source)
            except StopIteration:
                self.session.close()  # time between two epochs belongs to no iteration
                return
            self.session.mark(("forward", OUTSIDE))
            self.batch = self.batch or _length(batch)
            self._handed_out = True
            yield batch

    def _check_stepped(self) -> None:
        if self._handed_out:
            raise InputError("clock.step() was not called: call it at the end of every iteration")

    def step(self) -> None:
        """Marks the end of an iteration."""
        if self._closed:
            raise InputError("clock.step() was called outside the clock's `with` block")
        self._handed_out = False
        self.session.end_iteration()

    def _around_update(self, log: MarkLog) -> ExitStack:
        """Marks on either side of the optimizer's step, for one sampled iteration."""
        if _device_of(self.model) != self.device:  # here, because this is between two iterations
            raise InputError(
                f"the model was moved from {self.device} to {_device_of(self.model)} while it was measured: "
                "move it before the clock starts"
            )
        stack = ExitStack()
        if self.optimizer is not None:
            stack.callback(mark_around(self.optimizer, "step", log, ("update", ""), ("other", "")))
        return stack

    def measurement(self, name: str = "") -> Measurement:
        """The measurement so far; the `with` block may still be open."""
        if self.session.number == 0:
            raise InputError("nothing was measured: call clock.step() at the end of every iteration")
        self.session.finish()
        if self.session.samples and not self.session.backwards:
            raise InputError(
                "no backward pass was seen: call loss.backward() (or torch.autograd.grad) inside the block"
            )
        return summarise(
            self.session,
            device_rates(self.device),
            name=name or type(self.model).__name__,
            batch=self.batch,
            device=str(self.device),
            device_name=device_name(self.device),
            step="plain",
            peak_memory_bytes=peak_memory_bytes(self.device),
            conditions={"threads": str(torch.get_num_threads()), "torch": torch.__version__},
        )


def _device_of(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _length(batch: Any) -> int:
    """The number of samples: the first dimension of the first tensor or array in a batch."""
    leaves = tree_leaves(dict(batch) if isinstance(batch, Mapping) else batch)
    shapes = (leaf.shape for leaf in leaves if hasattr(leaf, "shape"))
    return next((int(shape[0]) for shape in shapes if len(shape)), 0)
