"""A silent process counts as hung after a while that depends on what it does; a slow step is none."""

from __future__ import annotations

import pytest

from paceline.errors import StrategyError
from paceline.testing import Fault
from paceline.training.drivers.local import hang_detection, launcher
from paceline.training.drivers.local.hang_detection import Silence
from paceline.training.settings import DriverSettings
from tests.training.drivers.local.small import BATCHES, SLOW_STEP_S, assert_nothing_is_left, own, workload

LIMITS = DriverSettings(stopped_timeout=5, idle_timeout=20, busy_timeout=100, start_timeout=60)


class Watched:
    """A process of which a test says what the kernel reports: its state, and the share of a core that it uses."""

    def __init__(self, monkeypatch, *, uses: float, step_s: float = 0.1) -> None:
        self.now_s, self.cpu_s, self.state, self.uses = 1000.0, 0.0, "S", uses
        monkeypatch.setattr(hang_detection, "process_state", lambda _: (self.state, self.cpu_s))
        self.silence, self.steps = Silence(1, self.now_s), 0
        if step_s:
            for _ in range(5):
                self.step(step_s)

    def step(self, seconds: float) -> None:
        self.wait(seconds)
        self.steps += 1
        self.silence.seen(self.now_s, self.steps)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.cpu_s += self.uses * seconds

    def verdict(self, working: bool = True) -> str | None:
        return self.silence.hung(self.now_s, LIMITS, working=working)

    def silent_until_ended(self, working: bool = True, most_s: float = 1000.0) -> tuple[float, str]:
        start_s = self.now_s
        while (found := self.verdict(working)) is None:
            assert self.now_s - start_s < most_s
            self.wait(0.25)
        return self.now_s - start_s, found


def test_a_stopped_process_is_ended_first(monkeypatch):
    watched = Watched(monkeypatch, uses=0.0)
    watched.verdict()
    watched.state = "T"
    seconds, why = watched.silent_until_ended()
    assert 5 < seconds <= 5.5 and why == "was stopped for more than 5 s (stopped_timeout)"


def test_one_that_is_continued_in_time_is_left_alone(monkeypatch):
    watched = Watched(monkeypatch, uses=0.0)
    for state in "TSTSTS":
        watched.state = state
        assert watched.verdict() is None
        watched.wait(3.0)
        watched.silence.seen(watched.now_s, watched.steps)
    assert watched.verdict() is None


def test_an_idle_process_is_ended_before_a_busy_one(monkeypatch):
    seconds, why = Watched(monkeypatch, uses=0.0).silent_until_ended()
    assert 20 < seconds <= 20.5 and why == "finished nothing and used no CPU time for 20 s (idle_timeout)"
    seconds, why = Watched(monkeypatch, uses=0.9).silent_until_ended()
    assert 100 < seconds <= 100.5 and why == "finished nothing for 100 s (busy_timeout)"


@pytest.mark.parametrize(("uses", "steps"), [(0.0, 10), (0.9, 50)], ids=["sleeping", "computing"])
def test_a_process_whose_steps_are_slow_has_longer(monkeypatch, uses, steps):
    """Ten or fifty times its median step, where that is longer than the limit."""
    seconds, _ = Watched(monkeypatch, uses=uses, step_s=15.0).silent_until_ended()
    assert steps * 15 < seconds <= steps * 15 + 0.5


def test_a_slow_process_that_works_is_never_ended(monkeypatch):
    watched = Watched(monkeypatch, uses=0.9)
    for _ in range(20):
        for _ in range(95):
            watched.wait(1.0)
            assert watched.verdict() is None
        watched.step(1.0)


def test_one_slow_step_does_not_move_the_median(monkeypatch):
    watched = Watched(monkeypatch, uses=0.0)
    watched.step(19.0)
    assert watched.silent_until_ended()[0] <= 20.5


def test_heartbeats_without_steps_show_that_it_waits(monkeypatch):
    watched = Watched(monkeypatch, uses=0.0)
    for _ in range(50):
        watched.wait(10.0)
        watched.silence.seen(watched.now_s, watched.steps)
        assert watched.verdict() is None


@pytest.mark.parametrize("uses", [0.0, 0.9], ids=["sleeping", "computing"])
def test_before_the_first_step_there_is_time_to_compile(monkeypatch, uses):
    watched = Watched(monkeypatch, uses=uses, step_s=0.0)
    seconds, why = watched.silent_until_ended(working=False)
    assert 60 < seconds <= 60.5 and why == "had no first step within 60 s (start_timeout)"


@pytest.mark.parametrize("field", ["stopped_timeout", "idle_timeout", "busy_timeout", "start_timeout"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), True, "x"])
def test_a_limit_that_is_none_is_refused_by_its_option(field, value):
    with pytest.raises(StrategyError, match=f"{field}=.* (should be a number above 0|is not a finite number)"):
        DriverSettings(**{field: value})


# With real processes

SHORT = {"stopped_timeout": 0.4, "idle_timeout": 60, "busy_timeout": 60, "start_timeout": 60}


@pytest.mark.parametrize(("worker", "what"), [(1, "hung"), (None, "server hung")], ids=["worker", "server"])
def test_who_is_stopped_by_a_signal_is_replaced(worker, what):
    """Anywhere, also while it has the lock: the others wait for it, and do not count as hung themselves."""
    slow = tuple(Fault("slow", worker=number, seconds=0.004) for number in range(2))
    run = launcher.run(workload(epochs=8), "downpour", workers=2, **SHORT, faults=(Fault("hang", 40, worker), *slow))
    d = run.distribution
    assert [(fault.what, fault.worker) for fault in d.faults] == [(what, worker)]
    assert "stopped_timeout" in d.faults[0].note
    assert d.ledger.applied_by_epoch == (BATCHES,) * 8
    assert_nothing_is_left()


@pytest.mark.serial
@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("sleeps", {"stopped_timeout": 0.3, "idle_timeout": 2 * SLOW_STEP_S, "busy_timeout": 2 * SLOW_STEP_S}),
        ("computes_long", {"stopped_timeout": 0.3, "idle_timeout": 0.3, "busy_timeout": 3 * SLOW_STEP_S}),
    ],
)
def test_a_network_with_slow_steps_is_not_ended(name, limits):
    """A step that takes twenty times as long as most: whoever computes may be silent for longer than who sleeps."""
    run = launcher.run(own(name, epochs=1), "sync", workers=2, **limits, start_timeout=60)
    assert run.distribution.faults == ()
    assert run.distribution.ledger.applied == BATCHES


@pytest.mark.soak
@pytest.mark.parametrize("name", ["sleeps_45_s", "computes_45_s"])
def test_a_step_of_45_s_is_not_a_hang(name):
    """Without any setting; batches of 360 samples are four per epoch, two for each worker."""
    run = launcher.run(own(name, epochs=1, batch=360), "sync", workers=2)
    assert run.distribution.faults == ()
    # A worker may begin its first step a moment before the time of training counts.
    assert run.distribution.ledger.applied == 4 and run.train_s > 89
