"""The address and port on which a member of a group listens for the others.

gloo lets the system choose its port, and PyTorch has no argument for it. With a range of ports, devices are therefore
created until the system has chosen one of the range: gloo listens on one port per process, whatever the size of the
group. nccl takes the interface from its environment variable; its ports cannot be chosen.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.errors import StrategyError

DRAW_WITHIN_S = 20.0
SYSTEM_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_SIOCGIFADDR = 0x8915


def listening_device(create: Callable[[], Any], address: str, ports: range) -> Any:
    """A device of gloo that listens on `address`, on one of `ports` where there are any.

    `create` makes a device on a port that the system chooses.
    """
    if not ports:
        return create()
    asked = f"port_range={ports.start}-{ports.stop - 1}"
    _check_system_range(asked, ports, address)
    if not any(_is_free(address, port) for port in ports):
        raise StrategyError(f"no port of `{asked}` is free at {address}: use a wider range, or stop what listens there")
    latest_s = time.monotonic() + DRAW_WITHIN_S
    while time.monotonic() < latest_s:
        before = _listening()
        device = create()
        if any(port in ports for number, port in _listening().items() if before.get(number) != port):
            return device
        del device
    raise StrategyError(f"gloo got no port of `{asked}` at {address} within {DRAW_WITHIN_S:g} s: use a wider range")


def _check_system_range(asked: str, ports: range, address: str) -> None:
    try:
        first, last = map(int, SYSTEM_RANGE.read_text().split())
    except (OSError, ValueError):
        return
    middle = first + (last - first) // 2  # a listening socket gets a port of the lower half while there is one
    if ports.start > middle or ports.stop <= first:
        raise StrategyError(
            f"`{asked}` is outside {first}-{middle}, from where the system of {address} takes ports "
            "(the lower half of net.ipv4.ip_local_port_range): choose a range in it"
        )


def _is_free(address: str, port: int) -> bool:
    with socket.socket(_family(address), socket.SOCK_STREAM) as tried:
        try:
            tried.bind((address, port))
        except OSError:
            return False
        return True


def _listening() -> dict[int, int]:
    """The ports on which this process listens, by file descriptor."""
    found = {}
    for opened_file in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if not str(opened_file.readlink()).startswith("socket:"):
                continue
            number = int(opened_file.name)
            with socket.socket(fileno=os.dup(number)) as opened:
                is_listening = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if is_listening and opened.family in (socket.AF_INET, socket.AF_INET6):
                    found[number] = int(opened.getsockname()[1])
    return found


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def bind_nccl(address: str) -> None:
    """Lets nccl use the interface with this address, unless the user has chosen one."""
    interface = interface_of(address)
    if interface:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def interface_of(address: str) -> str:
    """The network interface with an IPv4 address; empty if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return ""
