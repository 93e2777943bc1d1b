"""The members of a group average their payloads with torch.distributed: nccl between GPUs, or gloo.

Members form one process group when they start. Every round in which each of them has a part is one all-reduce; the
first member leaves the mean in its slot. Large gradients are reduced in buckets, which begin during the backward pass.
When a member dies, the supervisor starts the whole group again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import torch
from torch import Tensor, distributed

from paceline.errors import PacelineError, reason
from paceline.strategy.gradient_buckets import StartBucket
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner

PAUSE_S = 20e-6
RESTART_WITHIN_S = 60.0
"""After an all-reduce failed, because a member died or for another reason, the supervisor has so long to notice."""
_NEVER = timedelta(days=30)


class GroupAverage:
    def __init__(
        self, collective: str, meet: str, rank: int, members: int, learner: Learner, beat: Callable[[], None]
    ) -> None:
        """`meet` is how members find each other, as PyTorch's `init_method`; `beat` is called while they wait."""
        self.collective, self.rank, self.members, self.learner, self.beat = collective, rank, members, learner, beat
        on_gpu = collective == "nccl"
        device = learner.local.device if on_gpu else torch.device("cpu")
        self.vector = torch.zeros(learner.payload_size + 2, dtype=learner.local.dtype, device=device)
        """The weighted payload, its weight, and how many members have a payload that is not finite."""
        self.on_device = torch.zeros(learner.payload_size, dtype=learner.local.dtype, device=device) if on_gpu else None
        if self.on_device is not None:
            learner.bind(self.on_device)
        self.buckets = learner.buckets
        self._started: list[distributed.Work] = []
        """The all-reduces of this task's buckets, or of its complete payload."""
        self._failure: RuntimeError | None = None
        distributed.init_process_group(collective, init_method=meet, rank=rank, world_size=members, timeout=_NEVER)

    def payload(self, slot: Tensor) -> Tensor:
        """Where a payload is computed: on a GPU, which most of them never leave, or in its slot."""
        return slot if self.on_device is None else self.on_device

    def start_bucket(self, task: Compute, payload: Tensor) -> StartBucket | None:
        """What is to be called when a bucket of the payload is complete; None: payloads are averaged as a whole."""
        if not self.buckets or task.parts != self.members:
            return None
        return lambda samples, bucket: self._reduce_bucket(payload, samples, bucket)

    def push(self, task: Compute, payload: Tensor, slot: Tensor, samples: int, finite: bool) -> int:
        """Averages with the others where all have a part: 1 if the mean is in `slot` now, -1 if in the first member's.

        0: there is none, and `slot` has this member's own payload.
        """
        if task.parts == self.members and self._averaged(payload, samples / len(task.batches), finite):
            if self.rank:
                return -1
            n = self.learner.encoder.size
            slot[:n].copy_(self.vector[:n] / self.vector[-2])
            slot[n:].copy_(self.vector[n:-2] / self.members)
            return 1
        if payload is not slot:
            slot.copy_(payload)
        return 0

    def _averaged(self, payload: Tensor, samples: float, finite: bool) -> bool:
        """Whether the sum of all payloads is finite; all members find the same."""
        for bucket in range(len(self._started), len(self.buckets)):
            self._reduce_bucket(payload, samples, bucket)
        n, vector = self.learner.encoder.size, self.vector
        first = n if self.buckets else 0
        vector[first:].zero_()
        if finite:
            weight = self._weight(samples)
            if not self.buckets:
                torch.mul(payload[:n], weight, out=vector[:n])
            vector[n:-2].copy_(payload[n:])
            vector[-2] = weight
        else:
            vector[-1] = 1.0
        self._reduce(vector[first:])
        try:
            self._wait()
        except RuntimeError as error:
            self._wait_for_restart(error)
        return vector[-1].item() == 0.0 and bool(torch.isfinite(vector.sum()))

    def _weight(self, samples: float) -> float:
        return samples if self.learner.exchange.weighted else 1.0

    def _reduce_bucket(self, payload: Tensor, samples: float, bucket: int) -> None:
        piece = slice(*self.buckets[bucket])
        with torch.no_grad():
            torch.mul(payload[piece], self._weight(samples), out=self.vector[piece])
        self._reduce(self.vector[piece])

    def _reduce(self, piece: Tensor) -> None:
        """Begins an all-reduce. If another member is dead, that is reported when all of them are awaited."""
        if self._failure is not None:
            return
        try:
            self._started.append(distributed.all_reduce(piece, async_op=True))
        except RuntimeError as error:
            self._failure = error

    def _wait(self) -> None:
        for work in self._started:
            while not work.is_completed():
                time.sleep(PAUSE_S)
                self.beat()
            work.wait()
        if self._failure is not None:
            raise self._failure
        self._started.clear()

    def _wait_for_restart(self, error: Exception) -> None:
        last_s = time.monotonic() + RESTART_WITHIN_S
        while time.monotonic() < last_s:
            time.sleep(0.1)
            self.beat()
        raise PacelineError(f"{self.collective} failed: {reason(error)}; use `collective='shared'`")
