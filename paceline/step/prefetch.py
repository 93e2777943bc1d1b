"""Runs an iterator of host batches in a thread and hands them over on the device, copied while it computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import TracebackType

import torch
from torch import Tensor

from paceline.data.fields import Fields
from paceline.step.phase import Batch


class _End:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class Prefetcher:
    """A context manager and iterator. Leaving it early stops the thread; its errors are raised here."""

    def __init__(self, source: Iterator[Batch], device: torch.device, depth: int) -> None:
        self.source, self.device = source, device
        self.ready: queue.Queue[tuple[Batch, torch.cuda.Event | None] | _End] = queue.Queue(maxsize=depth)
        self.stopping = threading.Event()
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.thread = threading.Thread(target=self._run, name="paceline-prefetch", daemon=True)

    def __enter__(self) -> Prefetcher:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stopping.set()
        while self.thread.is_alive():
            try:
                self.ready.get(timeout=0.05)  # makes room for a thread that waits to hand something over
            except queue.Empty:
                self.thread.join(timeout=0.05)

    def __iter__(self) -> Iterator[Batch]:
        while True:
            item = self.ready.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            batch, copied = item
            if copied is not None:
                stream = torch.cuda.current_stream(self.device)
                stream.wait_event(copied)
                for tensor in batch:
                    tensor.record_stream(stream)
            yield batch

    def _run(self) -> None:
        try:
            for batch in self.source:
                if not self._put(self._to_device(batch)):
                    return
            self._put(_End())
        except BaseException as error:
            self._put(_End(error))

    def _put(self, item: tuple[Batch, torch.cuda.Event | None] | _End) -> bool:
        while not self.stopping.is_set():
            try:
                self.ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                pass
        return False

    def _to_device(self, batch: Batch) -> tuple[Batch, torch.cuda.Event | None]:
        if self.stream is None:
            return batch, None
        with torch.cuda.stream(self.stream):
            x, y = batch
            x = x.each(self._copied) if isinstance(x, Fields) else self._copied(x)
            y = self._copied(y)
            copied = torch.cuda.Event()
            copied.record(self.stream)
        return (x, y), copied

    def _copied(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(self.device, non_blocking=True)
