"""What a training tells TensorBoard: which curves, at which steps, and what becomes of it when it is resumed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import OutputError
from paceline.reporting.event_file import EventFile
from paceline.reporting.tensorboard import TensorBoard, last_rate, updates_at_end
from paceline.strategy.distribution import Distribution
from paceline.strategy.ledger import LedgerSummary
from paceline.strategy.presets import find_strategy
from paceline.training.run import Run, ValidationPoint
from paceline.workload import Workload
from tests.a_run import a_run
from tests.reporting.event_reading import Event, read_events

ALWAYS = {
    "loss/train", "loss/test", "accuracy/train", "accuracy/test", "learning_rate", "time/epoch_s",
    "speed/samples_per_s", "speed/updates_per_s",
}  # fmt: skip


def after(run: Run, epochs: int) -> Run:
    """As it was when so many of its epochs were done."""
    share = epochs / len(run.epochs)
    return replace(run, epochs=run.epochs[:epochs], updates=int(share * run.updates), train_s=share * run.train_s)


def tell(board: TensorBoard, run: Run, first: int = 0) -> None:
    board.begun(after(run, first), [])
    for epochs in range(first + 1, len(run.epochs) + 1):
        board.finished_epoch(run.epochs[epochs - 1], after(run, epochs))


def points_of(directory: Path) -> list[Event]:
    return [event for path in sorted(directory.iterdir()) for event in read_events(path) if event.scalars]


def distributed(driver: str, *, points: tuple[ValidationPoint, ...] = (), applied: tuple[int, ...] = (23, 23)) -> Run:
    ledger = LedgerSummary(46, sum(applied), applied_by_epoch=applied, staleness={"1": 40, "3": 6})
    made = Distribution(find_strategy("downpour"), 2, driver, seconds=3.0, updates=46, ledger=ledger)
    return a_run(distribution=made, points=points)


def test_an_epoch_is_a_point_of_every_curve_at_its_updates(tmp_path):
    run = a_run()
    with TensorBoard(tmp_path) as board:
        tell(board, run)
    first, second = points_of(tmp_path)
    assert (first.step, second.step) == (23, 46)
    assert set(first.scalars) == set(second.scalars) == ALWAYS
    expected = {
        "loss/train": 0.75, "loss/test": 0.625, "accuracy/train": 0.75, "accuracy/test": 0.8125, "time/epoch_s": 1.5,
        "learning_rate": 0.1, "speed/samples_per_s": 1900.0, "speed/updates_per_s": 23 / (3.25 / 2),
    }  # fmt: skip
    assert second.scalars == pytest.approx(expected)


def test_without_labels_there_is_no_accuracy(tmp_path):
    run = a_run(epochs=tuple(replace(e, train_accuracy=math.nan, test_accuracy=math.nan) for e in a_run().epochs))
    with TensorBoard(tmp_path) as board:
        tell(board, run)
    assert set(points_of(tmp_path)[0].scalars) == ALWAYS - {"accuracy/train", "accuracy/test"}


def test_a_simulated_run_has_the_steps_and_seconds_of_its_own_clock(tmp_path):
    run = distributed("virtual", points=(ValidationPoint(1, 10.0, 24), ValidationPoint(2, 20.0, 46)))
    with TensorBoard(tmp_path) as board:
        board.begun(replace(run, updates=0, points=(), distribution=replace(run.distribution, seconds=0.0)), [])
        for number, epoch in enumerate(run.epochs, start=1):
            board.finished_epoch(epoch, replace(run, points=run.points[:number]))
    first, second = points_of(tmp_path)
    assert [e.step for e in (first, second)] == [24, 46]
    assert [e.scalars["time/virtual_s"] for e in (first, second)] == [10.0, 20.0]
    assert [e.scalars["speed/updates_per_s"] for e in (first, second)] == pytest.approx([2.4, 2.2])
    assert second.scalars["staleness/mean"] == pytest.approx((40 + 18) / 46)


def test_processes_that_went_on_while_an_epoch_was_tested_do_not_move_its_point():
    run = distributed("local", applied=(23, 15))  # 38 batches are applied, by 46 updates
    assert updates_at_end(run.epochs[0], run) == 46 * 23 // 38
    assert updates_at_end(run.epochs[1], run) == 46
    assert updates_at_end(run.epochs[0], distributed("local", applied=())) == 0


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.1, 0.1]),
        ("step:1:0.5", [0.1, 0.05]),
        ("cosine", [0.05 * (1 + math.cos(math.pi * n / 46)) for n in (22, 45)]),
        ("warm-up:2", [0.1 * n / 47 for n in (23, 46)]),
    ],
)
def test_the_rate_is_that_of_the_epoch_s_last_step(schedule, expected):
    run = a_run(workload=Workload(schedule=schedule, epochs=2))
    assert [last_rate(e, after(run, e.epoch)) for e in run.epochs] == pytest.approx(expected)


def test_the_rate_is_the_server_s_where_that_has_its_own_and_unknown_where_phases_have():
    run = distributed("local")
    own = replace(run.distribution, strategy=find_strategy("downpour", server_optimizer="adagrad:0.5"))
    assert last_rate(run.epochs[0], replace(run, distribution=own)) == 0.5
    phases = replace(run, workload=replace(run.workload, phases="mine:phases"))
    assert math.isnan(last_rate(run.epochs[0], phases))


def test_a_resumed_run_goes_on_in_a_new_file_and_takes_back_what_is_done_again(tmp_path):
    run = a_run()
    with pytest.raises(KeyboardInterrupt), TensorBoard(tmp_path) as board:
        tell(board, run)
        raise KeyboardInterrupt
    with TensorBoard(tmp_path) as board:
        tell(board, run, first=1)
    before, later = (read_events(path) for path in sorted(tmp_path.iterdir()))
    assert [e.step for e in before if e.session] == [1]
    assert [e.step for e in later if e.session] == [24], "points from 24 on are void, that of 23 stays"
    assert [e.step for e in later if e.scalars] == [46]
    assert (before[-1].ended, later[-1].ended) == (2, 1)


def test_hyper_parameters_are_the_run_s_own_and_those_that_were_given(tmp_path):
    with TensorBoard(tmp_path / "own") as board:
        tell(board, distributed("local"))
    with TensorBoard(tmp_path / "given", {"lr": 0.5, "kind": "train", "trial": None}, group="abc") as board:
        tell(board, a_run())
    own, given = (read_events(next((tmp_path / name).iterdir()))[1] for name in ("own", "given"))
    assert own.hyper_parameters["network"] == "lenet5" and own.hyper_parameters["strategy"] == "downpour"
    assert "dropout" not in own.hyper_parameters, "what the network has by default is not known here"
    assert (given.hyper_parameters["lr"], given.hyper_parameters["kind"], given.group) == (0.5, "train", "abc")
    assert given.hyper_parameters["network"] == "lenet5" and "trial" not in given.hyper_parameters


def test_a_run_that_never_began_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="wrong"), TensorBoard(tmp_path / "run"):
        raise ValueError("wrong")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_unless_something_else_ended_the_run(tmp_path, monkeypatch):
    def full(file: EventFile, well: bool) -> None:
        raise OutputError("no space left")

    monkeypatch.setattr(EventFile, "ended", full)
    with pytest.raises(OutputError, match="no space left"), TensorBoard(tmp_path / "a") as board:
        tell(board, a_run())
    with pytest.raises(KeyboardInterrupt), TensorBoard(tmp_path / "b") as board:
        tell(board, a_run())
        raise KeyboardInterrupt
