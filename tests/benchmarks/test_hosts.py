"""Hosts of one machine: their links have the rate and the delay that was asked for, and nothing is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from benchmarks import hosts as module
from benchmarks.hosts import GBIT, Relay, hosts

RECEIVER = """
import socket, sys
server = socket.create_server((sys.argv[1], 5001))
print("ready", flush=True)
connection, _ = server.accept()
while connection.recv(1 << 20):
    connection.sendall(b"x") if sys.argv[2] == "echo" else None
connection.sendall(b"x")
"""
SENDER = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5001))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if sys.argv[2] == "echo":
    times = []
    for _ in range(10):
        start_s = time.monotonic()
        connection.sendall(b"x")
        connection.recv(1)
        times.append(time.monotonic() - start_s)
    print(min(times))
else:
    start_s = time.monotonic()
    connection.sendall(bytes(int(sys.argv[2])))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    print(time.monotonic() - start_s)
"""


def seconds(there, here, what):
    receiver = subprocess.Popen(
        there.command(sys.executable, "-c", RECEIVER, there.address, what), stdout=subprocess.PIPE
    )  # fmt: skip
    assert receiver.stdout is not None and receiver.stdout.readline()
    said = subprocess.run(
        here.command(sys.executable, "-c", SENDER, there.address, what), capture_output=True, check=True, timeout=30
    )  # fmt: skip
    receiver.wait(10)
    return float(said.stdout)


def namespaces():
    return subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def three_hosts():
    try:
        with hosts(3, GBIT, 0.005) as made:
            yield made
    except PermissionError as error:
        pytest.skip(str(error))
    assert made[0].name not in namespaces()


@pytest.mark.slow
@pytest.mark.serial
def test_a_message_takes_the_delay_each_way(three_hosts):
    assert 0.010 <= seconds(three_hosts[1], three_hosts[0], "echo") < 0.014


@pytest.mark.slow
@pytest.mark.serial
def test_a_large_message_takes_the_time_of_the_rate(three_hosts):
    size = 50_000_000
    took_s = seconds(three_hosts[2], three_hosts[1], str(size))
    assert size / GBIT < took_s < 1.25 * size / GBIT + 0.05


@pytest.mark.slow
def test_hosts_are_gone_when_their_owner_is_killed():
    code = "import time; from benchmarks.hosts import hosts\nwith hosts(2): print('made', flush=True); time.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert owner.stdout is not None
    if not owner.stdout.readline():
        pytest.skip("network namespaces are not permitted")
    assert f"paceline-{owner.pid}-" in namespaces()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    latest_s = time.monotonic() + 10
    while f"paceline-{owner.pid}-" in namespaces():
        assert time.monotonic() < latest_s
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("attribute", "answer", "said"),
    [("geteuid", lambda: 1000, "need root"), ("access", lambda *_: False, "need /dev/net/tun")],
)
def test_where_they_are_not_permitted_one_line_says_why(attribute, answer, said, monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: name)
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    monkeypatch.setattr(module.os, attribute, answer)
    with pytest.raises(PermissionError, match=said), hosts(2):
        pass


def packet(target, size):
    return bytes(16) + bytes(map(int, target.split("."))) + bytes(size - 20)


def test_the_relay_delays_a_packet_by_its_length_and_the_delay(monkeypatch):
    now, sent = SimpleNamespace(s=100.0), []
    monkeypatch.setattr(module, "monotonic", lambda: now.s)
    monkeypatch.setattr(module.os, "write", lambda device, data: sent.append((now.s, device, len(data))))
    relay = Relay(rate=1000.0, delay_s=0.5)
    ends = [os.pipe() for _ in range(2)]
    try:
        for number, (reading, _) in enumerate(ends):
            relay.add(f"10.0.0.{number}", reading)
        arriving = [packet("10.0.0.1", 100), packet("10.0.0.1", 100), packet("10.9.9.9", 100)]
        monkeypatch.setattr(module.os, "read", lambda device, size: arriving.pop(0) if arriving else _nothing())
        relay._read(ends[0][0])
        for now.s in (100.59, 100.61, 100.69, 100.71):
            relay._deliver()
    finally:
        for end in (end for pair in ends for end in pair):
            os.close(end)
    assert sent == [(100.61, ends[1][0], 100), (100.71, ends[1][0], 100)]


def _nothing():
    raise BlockingIOError
