"""`python -m paceline.deployment.wait_for_nodes N`: returns when N nodes of the Ray cluster are alive.

Deployment files call it on the head: workers are counted against the nodes that are alive when training starts.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

WITHIN_S = 600.0
EVERY_S = 1.0


def wait_for_nodes(
    ray: Any, wanted: int, *, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> int:
    """The number of nodes that are alive: `wanted`, or fewer after `WITHIN_S`."""
    latest_s = now() + WITHIN_S
    while True:
        alive = sum(bool(node["Alive"]) for node in ray.nodes())
        if alive >= wanted or now() >= latest_s:
            return alive
        sleep(EVERY_S)


def main(arguments: list[str]) -> int:
    ray: Any = importlib.import_module("ray")
    wanted = int(arguments[0])
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    alive = wait_for_nodes(ray, wanted)
    if alive < wanted:
        print(f"paceline: {alive} of {wanted} nodes joined the Ray cluster within {WITHIN_S:g} s", file=sys.stderr)
    return int(alive < wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
