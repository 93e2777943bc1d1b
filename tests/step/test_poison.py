"""Which memory is filled with NaN before a compiled step is compared, on a pretended GPU."""

from __future__ import annotations

import pytest
import torch

from paceline.step import poison


def block(size, state="inactive"):
    return {"size": size, "state": state}


SNAPSHOT = [
    {"device": 0, "segment_pool_id": (0, 0), "blocks": [block(512), block(4096), block(1024, "active_allocated")]},
    {"device": 0, "segment_pool_id": (0, 3), "blocks": [block(8192)]},
    {"device": 1, "segment_pool_id": (0, 0), "blocks": [block(2048)]},
    {"device": 0, "blocks": [block(1 << 20)]},
]


@pytest.fixture
def filled(monkeypatch):
    sizes = []

    def full(shape, value, device):
        if len(sizes) == 2:
            raise torch.OutOfMemoryError("full")
        sizes.append(4 * shape[0])
        assert value != value and device.type == "cuda"
        return torch.empty(0)

    monkeypatch.setattr(torch, "full", full)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: SNAPSHOT)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    return sizes


def test_free_blocks_of_the_device_outside_graphs_are_filled_largest_first(filled):
    assert poison._free_blocks(0) == [1 << 20, 4096, 512]
    poison.poison_free_memory(torch.device("cuda", 0))
    assert filled == [1 << 20, 4096], "memory that ran out ends it without an error"


def test_a_cpu_has_nothing_to_fill(filled):
    poison.poison_free_memory(torch.device("cpu"))
    assert filled == []
