"""Event files: the records that TensorBoard expects, read by a decoder that shares nothing with what writes them."""

from __future__ import annotations

import math
import sys

import pytest

from paceline.errors import OutputError, PacelineError
from paceline.reporting.event_file import EventFile
from tests.reporting.event_reading import read_events


def test_a_file_begins_with_its_version_and_has_every_point_with_its_step_and_time(tmp_path):
    with EventFile(tmp_path / "a" / "run", clock=iter((10.0, 11.5, 13.25)).__next__) as file:
        file.begin_at(1)
        file.scalars(938, {"loss/train": 0.5, "accuracy/test": 0.75})
    (path,) = (tmp_path / "a" / "run").iterdir()
    assert path.name.startswith("events.out.tfevents.")
    version, began, points = read_events(path)
    assert (version.wall_time, version.file_version) == (10.0, "brain.Event:2")
    assert (began.wall_time, began.step, began.session) == (11.5, 1, 1)
    assert (points.wall_time, points.step) == (13.25, 938)
    assert points.scalars == {"loss/train": 0.5, "accuracy/test": 0.75}


def test_what_is_no_number_or_too_large_for_a_float_has_no_point(tmp_path):
    with EventFile(tmp_path) as file:
        file.scalars(1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1e39, "e": -3e38, "f": 0.0})
    (path,) = tmp_path.iterdir()
    assert read_events(path)[-1].scalars == {"e": pytest.approx(-3e38), "f": 0.0}


def test_hyper_parameters_are_told_with_their_types(tmp_path):
    with EventFile(tmp_path) as file:
        file.hyper_parameters(
            {"lr": 0.1, "batch": 64, "network": "mlp", "full_pass_per_worker": True, "options": {"a": [1]}}, "s"
        )
        file.ended(well=False)
    (path,) = tmp_path.iterdir()
    _, start, end = read_events(path)
    given = {"lr": 0.1, "batch": 64.0, "network": "mlp", "full_pass_per_worker": True, "options": '{"a": [1]}'}
    assert start.hyper_parameters == given and start.group == "s"
    assert end.ended == 2


def test_what_was_written_before_a_kill_is_there_and_the_next_file_comes_after_it(tmp_path):
    first = EventFile(tmp_path)
    first.scalars(1, {"a": 1.0})  # and is never closed
    (before,) = tmp_path.iterdir()
    assert read_events(before)[-1].scalars == {"a": 1.0}
    with EventFile(tmp_path):
        assert sorted(tmp_path.iterdir())[0] == before


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"`tensorboard=.*file/run.` cannot be written: Not a directory"):
        EventFile(tmp_path / "file" / "run")


def test_without_tensorboard_its_package_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "paceline.reporting.event_file")
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(PacelineError, match=r"needs TensorBoard: pip install paceline\[tensorboard\]"):
        import paceline.reporting.event_file  # noqa: F401
