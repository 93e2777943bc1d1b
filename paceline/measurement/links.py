"""Measures the links of this machine: between processes, between host and device, between disk and host.

Latency is the time of the smallest message, bandwidth is that of the largest; both are medians of several rounds.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

SMALL_BYTES = 1
LARGE_BYTES = 64 << 20
ROUNDS = 7
ECHO = 200
NODE_TO_NODE = "node to node, Ray"
"""The network between the nodes of a cluster, as the Ray driver uses it."""
ECHO_PROGRAM = """
import sys
from multiprocessing.connection import Connection

connection = Connection(int(sys.argv[1]))
try:
    while True:
        connection.recv_bytes()
        connection.send_bytes(b"x")
except (EOFError, OSError):
    pass
"""


@dataclass(frozen=True)
class LinkSpeed:
    """One link: its latency in seconds and its bandwidth in bytes/s."""

    link: str
    latency_s: float
    bandwidth: float


@dataclass(frozen=True)
class LinkMeasurement:
    links: tuple[LinkSpeed, ...]
    conditions: dict[str, str]


def measure_links(device: torch.device, directory: Path | None = None) -> LinkMeasurement:
    links = [_between_processes(), _shared_memory(), *_disk(directory or Path(tempfile.gettempdir()))]
    if device.type == "cuda":
        links += _host_and_device(device)
    return LinkMeasurement(tuple(links), {"device": str(device), "torch": torch.__version__})


def _between_processes() -> LinkSpeed:
    """To a program that answers every message with one byte. Unlike a `multiprocessing.Process`, it does not import the
    user's script again, so that a script needs no `if __name__ == "__main__"`."""
    here, there = multiprocessing.Pipe()
    words = [sys.executable, "-S", "-c", ECHO_PROGRAM, str(there.fileno())]
    other = subprocess.Popen(words, pass_fds=[there.fileno()], start_new_session=True)
    there.close()

    def exchange(message: bytes) -> None:
        here.send_bytes(message)
        here.recv_bytes()

    try:
        exchange(b"x")
        small, large = b"x", bytes(LARGE_BYTES)
        latency = median(_seconds(lambda: exchange(small)) for _ in range(ECHO)) / 2
        seconds = median(_seconds(lambda: exchange(large)) for _ in range(ROUNDS))
    finally:
        here.close()
        try:
            other.wait(timeout=5)
        except subprocess.TimeoutExpired:
            other.kill()
            other.wait()
    return LinkSpeed("process to process, socket", latency, LARGE_BYTES / seconds)


def _shared_memory() -> LinkSpeed:
    """A copy into memory that two processes share."""
    inside = torch.frombuffer(mmap.mmap(-1, LARGE_BYTES), dtype=torch.uint8)
    outside = torch.ones(LARGE_BYTES, dtype=torch.uint8)
    inside.copy_(outside)
    latency = median(_seconds(lambda: inside[:64].copy_(outside[:64])) for _ in range(ECHO))
    seconds = median(_seconds(lambda: inside.copy_(outside)) for _ in range(ROUNDS))
    return LinkSpeed("process to process, shared memory", latency, LARGE_BYTES / seconds)


def _disk(directory: Path) -> list[LinkSpeed]:
    """Writes are synced to the disk; before reads the file is dropped from the page cache."""
    content = os.urandom(1 << 20) * (LARGE_BYTES >> 20)
    with tempfile.TemporaryFile(dir=directory) as file:  # unnamed, so nothing is left behind even after SIGKILL
        descriptor = file.fileno()

        def write(data: bytes) -> None:
            os.pwrite(descriptor, data, 0)
            os.fsync(descriptor)

        def read(count: int) -> None:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            done = 0
            while done < count:
                done += len(os.pread(descriptor, min(4 << 20, count - done), done))

        write(content)
        writing = median(_seconds(lambda: write(content)) for _ in range(3))
        reading = median(_seconds(lambda: read(LARGE_BYTES)) for _ in range(ROUNDS))
        write_latency = median(_seconds(lambda: write(b"x")) for _ in range(20))
        read_latency = median(_seconds(lambda: read(SMALL_BYTES)) for _ in range(20))
    return [
        LinkSpeed("disk to host", read_latency, LARGE_BYTES / reading),
        LinkSpeed("host to disk", write_latency, LARGE_BYTES / writing),
    ]


def _host_and_device(device: torch.device) -> list[LinkSpeed]:
    links = []
    for pinned in (True, False):
        host = torch.zeros(LARGE_BYTES, dtype=torch.uint8, pin_memory=pinned)
        there = torch.zeros(LARGE_BYTES, dtype=torch.uint8, device=device)
        word = "pinned" if pinned else "pageable"
        for name, target, source in (("host to device", there, host), ("device to host", host, there)):

            def copy(count: int, target: torch.Tensor = target, source: torch.Tensor = source) -> None:
                target[:count].copy_(source[:count], non_blocking=True)
                torch.cuda.synchronize(device)

            copy(LARGE_BYTES)
            latency = median(_seconds(lambda: copy(SMALL_BYTES)) for _ in range(50))
            seconds = median(_seconds(lambda: copy(LARGE_BYTES)) for _ in range(ROUNDS))
            links.append(LinkSpeed(f"{name}, {word}", latency, LARGE_BYTES / seconds))
    return links


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start
