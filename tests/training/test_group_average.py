"""Two members average with gloo, in buckets during the backward pass: the bits of one all-reduce, or a stated error."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed

from paceline.errors import PacelineError
from paceline.step.build import assemble, load_data
from paceline.step.tally import Tally
from paceline.strategy import gradient_buckets
from paceline.strategy.finite import is_finite
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner
from paceline.strategy.presets import find_strategy
from paceline.training import group_average
from paceline.training.group_average import GroupAverage
from tests.step.small_parts import parts_for, rows
from tests.strategy.test_gradient_buckets import Noting
from tests.training.drivers.local.small import own

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo here"),
]
MEMBERS = 2


class Member:
    """A member of a group, whose network notes when its backward pass is where, and buckets when they begin."""

    def __init__(self, rank: int, folder: Path) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        gradient_buckets.SINGLE_BELOW_BYTES = 0
        gradient_buckets.FIRST_BUCKET_BYTES, gradient_buckets.BUCKET_BYTES = 60, 100
        group_average.RESTART_WITHIN_S = 0.5
        self.rank, self.network = rank, Noting()
        self.learner = Learner(parts_for(self.network, rows(), lr=0.1), find_strategy("sync"), MEMBERS)
        self.slot = torch.zeros(self.learner.payload_size)
        self.learner.bind(self.slot)
        self.start = self.learner.initial()
        beat = lambda: None  # noqa: E731
        self.average = GroupAverage("gloo", f"file://{folder}/meeting", rank, MEMBERS, self.learner, beat)
        self.bounds = self.learner.buckets

    def task(self, batch: int, *, buckets: bool, spoilt: bool = False, parts: int = MEMBERS) -> tuple[int, Tensor]:
        """What `push` returns, and the slot."""
        self.learner.buckets = self.average.buckets = self.bounds if buckets else ()
        task = Compute(self.rank, 1, 0, (batch,), (0,), 0, parts)
        out, began = self.average.payload(self.slot), self.average.start_bucket(task, self.slot)
        assert (began is None) == (not buckets or parts < MEMBERS)

        def noting(samples: int, bucket: int) -> None:
            self.network.notes.append(f"bucket {bucket}")
            began(samples, bucket)

        start_bucket = noting if began is not None else None
        result = self.learner.run(task, lambda _: (1, self.start), out, Tally(1), None, start_bucket)
        if spoilt:
            out[0] = torch.nan
        return self.average.push(task, out, self.slot, result.samples, is_finite(out)), self.slot.clone()


def averages(rank: int, folder: Path) -> None:
    """What each member gets in several rounds; then the second one dies during a backward pass."""
    member = Member(rank, folder)
    found = {}
    for buckets in (True, False):
        rounds = [(rank, {}), (4 - rank, {}), (rank, {"spoilt": rank == 1}), (rank, {"parts": 1}), (rank + 1, {})]
        found[buckets] = [member.task(batch, buckets=buckets, **how) for batch, how in rounds]
    torch.save(found, folder / f"{rank}.pt")
    assert member.network.notes.index("bucket 0") < member.network.notes.index("backward of the output of first")
    if rank == 1:
        started, start = [], member.average._reduce_bucket

        def die(payload: Tensor, samples: float, bucket: int) -> None:
            start(payload, samples, bucket)
            started.append(bucket)
            if len(started) == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        member.average._reduce_bucket = die  # type: ignore[method-assign]
    start_s = time.monotonic()
    with pytest.raises(PacelineError, match=r"gloo failed: .*; use `collective='shared'`"):
        member.task(0, buckets=True)
    (folder / "lasted").write_text(str(time.monotonic() - start_s))


def test_buckets_find_the_bits_of_a_single_all_reduce_and_a_death_in_the_middle_ends_the_wait(tmp_path):
    processes = torch.multiprocessing.spawn(averages, (tmp_path,), nprocs=MEMBERS, join=False).processes
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, -signal.SIGKILL]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(MEMBERS))
    for bucketed, whole in zip(first[True], first[False], strict=True):
        assert bucketed[0] == whole[0]
        assert torch.equal(*(torch.nan_to_num(found[1]) for found in (bucketed, whole)))
    assert [pushed for pushed, _ in first[True]] == [1, 1, 0, 0, 1]
    assert [pushed for pushed, _ in second[True]] == [-1, -1, 0, 0, -1], "the first member has the mean"
    assert float((tmp_path / "lasted").read_text()) < 10.0


@pytest.mark.gpu
def test_on_a_gpu_buckets_start_from_the_thread_of_the_backward_pass(tmp_path, monkeypatch):
    """One member by itself: where gradients are computed and in which order, as with several GPUs."""
    monkeypatch.setattr(gradient_buckets, "SINGLE_BELOW_BYTES", 0)
    monkeypatch.setattr(gradient_buckets, "FIRST_BUCKET_BYTES", 500)
    made = own("with_batch_norm", device="cuda:0")
    learner = Learner(assemble(made, load_data(made), torch.device("cuda:0")), find_strategy("sync"), 1)
    start, bounds, slot = learner.initial(), learner.buckets, torch.zeros(learner.payload_size)
    average = GroupAverage("nccl", f"file://{tmp_path}/meeting", 0, 1, learner, lambda: None)
    started, found = [], []
    try:
        for buckets in (bounds, ()):
            learner.buckets = average.buckets = buckets
            task = Compute(0, 1, 0, (1,), (0,), 0, 1)
            out = average.payload(slot)
            begun = average.start_bucket(task, out)

            def noting(samples: int, bucket: int, begun=begun) -> None:
                started.append(threading.current_thread() is threading.main_thread())
                begun(samples, bucket)

            result = learner.run(task, lambda _: (1, start), out, Tally(1), None, noting if begun else None)
            assert average.push(task, out, slot, result.samples, is_finite(out)) == 1
            found.append(slot.clone())
    finally:
        distributed.destroy_process_group()
    assert torch.equal(*found) and found[0].any()
    assert started == [False] * len(bounds) and len(bounds) == 2
