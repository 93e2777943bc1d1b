"""Tests of the Ray driver share one cluster."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def cluster(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("driver") == "ray":
        request.getfixturevalue("ray_cluster")
