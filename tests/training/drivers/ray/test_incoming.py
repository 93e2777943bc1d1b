"""Large payloads are transferred in turns, small ones come with the call."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from paceline.training.drivers.ray import incoming
from paceline.training.drivers.ray.incoming import TURNS, Incoming


class Transfers:
    """In place of Ray: how many transfers there were at once."""

    def __init__(self, seconds=0.02):
        self.seconds, self.now, self.most, self.lock = seconds, 0, 0, threading.Lock()

    def wait(self, references, num_returns, timeout, fetch_local):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds)
        with self.lock:
            self.now -= 1

    def get(self, references, timeout):
        if references == ["lost"]:
            raise LookupError
        return [np.ones(2) for _ in references]


@pytest.fixture
def transfers(monkeypatch):
    made = Transfers()
    monkeypatch.setattr(incoming, "import_module", lambda name: made)
    return made


def test_pieces_that_came_with_the_call_are_taken_as_they_are(transfers):
    piece = np.zeros(3)
    assert Incoming(1.0).receive((piece,)) == (piece,)
    assert transfers.most == 0


def test_not_all_payloads_are_transferred_at_once(transfers):
    one = Incoming(1.0)
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda _: one.receive(([object()],)), range(6)))
    assert all(len(pieces) == 1 for pieces in found)
    assert transfers.most == TURNS


def test_a_payload_whose_worker_died_lets_the_next_ones_through(transfers):
    one = Incoming(1.0)
    for _ in range(TURNS + 1):
        with pytest.raises(LookupError):
            one.receive((["lost"],))
    assert len(one.receive(([object()],))) == 1


def test_a_payload_waits_for_its_turn_only_so_long(transfers, monkeypatch):
    monkeypatch.setattr(incoming, "TURN_WITHIN_S", 0.01)
    transfers.seconds = 0.5
    one = Incoming(1.0)
    with ThreadPoolExecutor(TURNS + 1) as threads:
        list(threads.map(lambda _: one.receive(([object()],)), range(TURNS + 1)))
    assert transfers.most == TURNS + 1
