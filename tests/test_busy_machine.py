"""A machine with other work to do is noticed, said in one line, and kept in the record."""

from __future__ import annotations

import json
import os

import pytest

from paceline import busy_machine

IDLE = "cpu  100 0 100 800 0 0 0 0 0 0\n"


def stat(monkeypatch, tmp_path, load: float, user: int, idle: int, stolen: int, own: int = 0) -> str:
    """What is said if these ticks pass while it looks."""
    monkeypatch.setattr(busy_machine, "_own_ticks", iter((100, 100 + own)).__next__)
    file = tmp_path / "stat"
    file.write_text(IDLE)
    later = f"cpu  {100 + user} 0 100 {800 + idle} 0 0 0 {stolen} 0 0\n"
    monkeypatch.setattr(busy_machine, "_STAT", file)
    monkeypatch.setattr(busy_machine.time, "sleep", lambda seconds: file.write_text(later))
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    return REAL()


REAL, MEANWHILE = busy_machine.busy_now, busy_machine._meanwhile


def test_an_idle_machine_is_not_mentioned(monkeypatch, tmp_path):
    assert stat(monkeypatch, tmp_path, 0.2, user=10, idle=0, stolen=0) == "", "without load nothing is looked at"
    assert stat(monkeypatch, tmp_path, 3.0, user=1, idle=9, stolen=0) == "", "load that is over by now"


def test_other_work_and_steal_are_said(monkeypatch, tmp_path):
    said = stat(monkeypatch, tmp_path, 5.3, user=8, idle=2, stolen=0)
    assert said.startswith("this machine is busy (load 5.3 on 2 cores, 80 % of the CPU in use by others)")
    assert "20 % stolen" in stat(monkeypatch, tmp_path, 2.0, user=0, idle=8, stolen=2)


def test_processes_of_our_own_are_not_other_work(monkeypatch, tmp_path):
    assert stat(monkeypatch, tmp_path, 5.3, user=8, idle=2, stolen=0, own=7) == ""
    assert "30 % of the CPU in use by others" in stat(monkeypatch, tmp_path, 5.3, user=8, idle=2, stolen=0, own=5)


def test_the_time_of_this_process_and_its_children_is_its_own(monkeypatch, tmp_path):
    mine = os.getpid()
    for process, parent, ticks in ((mine, 1, 5), (900001, mine, 7), (900002, 900001, 11), (900003, 1, 13)):
        (tmp_path / str(process)).mkdir()
        fields = ["S", str(parent), *["0"] * 9, str(ticks), "1", "0"]
        (tmp_path / str(process) / "stat").write_text(f"{process} (a name) {' '.join(fields)}\n")
    monkeypatch.setattr(busy_machine, "_PROCESSES", tmp_path)
    assert busy_machine._own_ticks() == 5 + 7 + 11 + 3


def state(loop_s: float, idle: int, stolen: int) -> busy_machine._State:
    return busy_machine._State([100, 0, 100, idle, 0, 0, 0, stolen], loop_s)


@pytest.mark.parametrize(
    ("loop_s", "stolen", "said"),
    [
        (1.1e-4, 1, ""),
        (0.5e-4, 0, ""),
        (1.3e-4, 0, "the processor was 30 % slower at the end than at the beginning"),
        (1.0e-4, 25, "other virtual machines took 20 % of the CPU meanwhile"),
    ],
)
def test_drift_and_steal_meanwhile_are_said(loop_s, stolen, said):
    assert MEANWHILE(state(1e-4, 800, 0), state(loop_s, 900, stolen)) == said


def test_a_run_whose_processor_became_slower_says_so(paceline, monkeypatch, tmp_path):
    loops = iter([1e-4, 2e-4])
    monkeypatch.setattr(busy_machine, "_state", lambda: state(next(loops), 0, 0))
    monkeypatch.setattr(busy_machine, "_meanwhile", MEANWHILE)
    result = paceline("train", "mlp", "--data", "digits", "--epochs", "1", "--json", "run.json")
    line = "the processor was 100 % slower at the end than at the beginning"
    assert result.code == 0 and result.err == f"warning: {line}\n"
    assert json.loads((tmp_path / "run.json").read_text())["conditions"]["busy"] == line


@pytest.mark.parametrize("words", [["train", "mlp", "--epochs", "1"], ["measure", "mlp", "--iterations", "20"]])
def test_commands_say_it_and_records_keep_it(paceline, monkeypatch, tmp_path, words):
    monkeypatch.setattr(busy_machine, "busy_now", lambda: "this machine is busy (load 9 on 2 cores)")
    result = paceline(*words, "--json", "result.json")
    assert result.code == 0 and "warning: this machine is busy (load 9 on 2 cores)\n" in result.out + result.err
    assert json.loads((tmp_path / "result.json").read_text())["conditions"]["busy"].startswith("this machine is busy")


def test_a_verification_says_that_the_machine_was_busy_when_it_was_measured(paceline, monkeypatch):
    monkeypatch.setattr(busy_machine, "busy_now", lambda: "this machine is busy (load 9 on 2 cores)")
    assert paceline("measure", "mlp", "--iterations", "20", "--out", "out").code == 0
    monkeypatch.setattr(busy_machine, "busy_now", lambda: "")
    shown = paceline("verify", "out", "--device", "Xeon Platinum 8480+", "--json", "-").json
    assert "noticed during the measurement: this machine is busy (load 9 on 2 cores)" in shown["notes"]
