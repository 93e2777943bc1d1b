"""A Ray cluster on hosts of this machine (`benchmarks.hosts`): the first has no CPUs, so workers run on the others."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.hosts import Host

PORT = 6379
START_WITHIN_S = 60.0
STOP_WITHIN_S = 10.0


@contextmanager
def ray_on(hosts: Sequence[Host], cpus: int, store_bytes: int) -> Iterator[str]:
    """The address of the cluster, where every host but the first has `cpus` CPUs."""
    ray, address = Path(sys.executable).parent / "ray", f"{hosts[0].address}:{PORT}"
    started: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="paceline-ray-", ignore_cleanup_errors=True) as folder:
        head = ["--head", f"--port={PORT}", f"--temp-dir={folder}", "--include-dashboard=false", "--num-cpus=0"]
        try:
            for number, host in enumerate(hosts):
                which = [f"--address={address}", f"--num-cpus={cpus}"] if number else head
                command = host.command(
                    str(ray), "start", "--block", "--disable-usage-stats", f"--node-ip-address={host.address}",
                    f"--object-store-memory={store_bytes}", *which,
                )  # fmt: skip
                quiet = subprocess.DEVNULL
                started.append(subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment))
                _await_raylets(Path(folder), number + 1)
            yield address
        finally:
            for process in started:
                process.terminate()
            for process in started:
                try:
                    process.wait(STOP_WITHIN_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _await_raylets(folder: Path, count: int) -> None:
    """Waits for one node before the next is started: they share a folder of sockets, and would choose equal names."""
    latest_s = time.monotonic() + START_WITHIN_S
    while len(list(folder.glob("session_latest/sockets/raylet*"))) < count:
        if time.monotonic() > latest_s:
            raise TimeoutError(f"Ray did not start within {START_WITHIN_S:g} s")
        time.sleep(0.1)
