"""Hosts on one machine: network namespaces joined by links of a given rate and delay.

Every host has a TUN device. What it sends passes a token bucket filter (tbf) of the link's rate; a relay then passes
it on, at the same rate per receiver and after the link's delay, because not every kernel has netem. The relay is a
process of its own (`python -m benchmarks.hosts`) and removes everything when its input ends, however its parent ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

GBIT = 125_000_000
"""Bytes/s of 1 Gb/s."""
MTU = 65_000
"""Large packets, so that a relay in Python keeps up with 1 Gb/s."""
BURST_BYTES = 2 * MTU
QUEUE_BYTES = 64 << 20
"""What may wait for a link: TCP slows down before any of it is lost."""
NETWORK = "10.213.7"
READY_WITHIN_S = 20.0
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_DESTINATION = slice(16, 20)
"""Of an IPv4 header."""


@dataclass(frozen=True)
class Host:
    name: str
    address: str

    def command(self, *words: str) -> list[str]:
        """The command, as run on this host."""
        return ["ip", "netns", "exec", self.name, *words]


@contextmanager
def hosts(count: int, rate: float = GBIT, delay_s: float = 0.005) -> Iterator[list[Host]]:
    """Hosts with links of `rate` bytes/s in each direction and `delay_s` one way between any two of them.

    Processes that are left on them at the end are killed. Raises `PermissionError` where namespaces are not permitted.
    """
    why = _not_permitted()
    if why:
        raise PermissionError(why)
    settings = json.dumps([os.getpid(), count, rate, delay_s])
    command = [sys.executable, "-m", "benchmarks.hosts", settings]
    relay = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert relay.stdin and relay.stdout and relay.stderr
    try:
        if not select.select([relay.stdout], [], [], READY_WITHIN_S)[0] or not (said := relay.stdout.readline()):
            relay.kill()
            lines = relay.stderr.read().strip().splitlines() or ["it did not start"]
            raise PermissionError(f"network namespaces are not available: {lines[-1]}")
        yield [Host(*each) for each in json.loads(said)]
    finally:
        relay.stdin.close()
        relay.wait(READY_WITHIN_S)


def _not_permitted() -> str:
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if missing:
        return f"network namespaces need `{missing[0]}`: apt-get install iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "network namespaces need /dev/net/tun"
    return ""


# The relay


class Relay:
    def __init__(self, rate: float, delay_s: float) -> None:
        self.rate, self.delay_s = rate, delay_s
        self.devices: dict[bytes, int] = {}
        """By the address of the host."""
        self._free_s: dict[int, float] = {}
        """When the link to a host has passed on all that was sent."""
        self._heap: list[tuple[float, int, int, bytes]] = []
        self._number = itertools.count()

    def add(self, address: str, device: int) -> None:
        os.set_blocking(device, False)
        self.devices[bytes(map(int, address.split(".")))] = device
        self._free_s[device] = 0.0

    def run(self, until: int) -> None:
        """Passes packets on until there is something to read at `until`."""
        waiting = [*self.devices.values(), until]
        while True:
            ready = select.select(waiting, [], [], self._next_s())[0]
            if until in ready:
                return
            for device in ready:
                self._read(device)
            self._deliver()

    def _next_s(self) -> float | None:
        return max(0.0, self._heap[0][0] - monotonic()) if self._heap else None

    def _read(self, device: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(16):
                packet = os.read(device, MTU + 64)
                target = self.devices.get(packet[_DESTINATION])
                if target is not None:
                    now_s = monotonic()
                    passed_s = self._free_s[target] = max(now_s, self._free_s[target]) + len(packet) / self.rate
                    heapq.heappush(self._heap, (passed_s + self.delay_s, next(self._number), target, packet))

    def _deliver(self) -> None:
        now_s = monotonic()
        while self._heap and self._heap[0][0] <= now_s:
            _, _, target, packet = heapq.heappop(self._heap)
            with contextlib.suppress(OSError):
                os.write(target, packet)


def _ip(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def _open_device(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def _make(host: Host, rate: float, device: str) -> None:
    _ip("ip", "netns", "add", host.name)
    _ip("ip", "link", "set", device, "netns", host.name)
    _ip(*host.command("ip", "link", "set", "lo", "up"))
    _ip(*host.command("ip", "link", "set", device, "mtu", str(MTU), "up"))
    _ip(*host.command("ip", "address", "add", f"{host.address}/24", "dev", device))
    bucket = ("rate", f"{8 * rate:.0f}bit", "burst", f"{BURST_BYTES}b", "limit", f"{QUEUE_BYTES}b")
    _ip(*host.command("tc", "qdisc", "add", "dev", device, "root", "tbf", *bucket))


def _remove(host: Host) -> None:
    """With the processes on it."""
    found = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True)
    for process in found.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", host.name], capture_output=True)


def _main(owner: int, count: int, rate: float, delay_s: float) -> None:
    made = [Host(f"paceline-{owner}-{number}", f"{NETWORK}.{number + 1}") for number in range(count)]
    relay = Relay(rate, delay_s)
    try:
        for number, host in enumerate(made):
            device = f"pl{owner}-{number}"[:15]
            relay.add(host.address, _open_device(device))
            _make(host, rate, device)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -15)  # a link does not wait for a processor
        print(json.dumps([[host.name, host.address] for host in made]), flush=True)
        relay.run(sys.stdin.fileno())
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.strip())
    finally:
        for host in made:
            _remove(host)


if __name__ == "__main__":
    _main(*json.loads(sys.argv[1]))
