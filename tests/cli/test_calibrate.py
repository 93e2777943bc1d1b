"""`paceline calibrate` with a handful of trials: the whole way into a file, and from there into a prediction."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import paceline.cost.calibrating as room
import paceline.cost.reference_measuring as references
from paceline import record
from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import calibration_path, load_calibration
from paceline.cost.reference_networks import ROWS
from paceline.cost.shape_sampling import Limits
from paceline.errors import InputError
from paceline.measurement.links import LinkMeasurement, LinkSpeed
from paceline.step.placement import available_cores, processor_name
from tests.cost.invented import calibration

KINDS = ("matmul", "convolution", "add", "softmax")
LINK = LinkSpeed("disk to host", 1e-4, 1e9)


@pytest.fixture(autouse=True)
def little_to_try(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(room, "TRIALS", dict.fromkeys(KINDS, 6))
    monkeypatch.setattr(room, "LIMITS", {"cpu": Limits(1e6, 2.0**14)})
    monkeypatch.setattr(references, "REFERENCES", {"cpu": {"perceptron": (ROWS, (8,)), "convolutional": (ROWS, (4,))}})
    monkeypatch.setattr(references, "ITERATIONS", 20)
    monkeypatch.setattr(room, "measure_links", lambda device: LinkMeasurement((LINK,), {}))


@pytest.mark.slow
def test_the_whole_way_into_a_file_and_a_prediction(paceline):
    result = paceline("calibrate", "--device", "cpu", "--out", "mine.json", "--json", "-")
    assert result.code == 0, result.err
    made = load_calibration(Path("mine.json"))
    assert result.json == record.dump(made)
    assert (made.device, made.device_name, made.cores) == ("cpu", processor_name(), available_cores())
    assert {(each.precision, each.threads) for each in made.sets} == {("float32", t) for t in {1, available_cores()}}
    for each in made.sets:
        tried = {trial.family for trial in each.trials}
        wanted = KINDS if each.memory_format == "contiguous" else ("convolution",)
        assert set(wanted) <= tried and "convolution_backward_weight" in tried
        assert set(each.shapes) == tried and all(trial.seconds > 0 for trial in each.trials)
    assert made.peak_flops > 0 and made.peak_bytes > 0 and made.links == (LINK,)
    fitted = {key.removesuffix(" 1 thread"): overheads for key, overheads in made.step_overheads.items()}
    assert set(fitted) == {"flat", "flat chain"}
    assert fitted["flat"].networks == ("paceline.cost.reference_networks:convolutional at 4",)
    assert int(made.conditions["trials"]) == sum(len(each.trials) for each in made.sets)

    for word in (
        "matrix products",
        "convolutions, backward",
        "peak GFLOP/s",
        "trials",
        "noise of the machine",
        "mine.json",
    ):
        assert word in result.err
    predicted = paceline("predict", "mlp", "--device", "mine.json")
    assert predicted.code == 0 and f"on {processor_name()} (calibrated: mine.json), step flat" in predicted.out


def test_without_a_place_it_is_kept_for_later_predictions(paceline, monkeypatch):
    made = replace(calibration(), device_name=processor_name())
    asked: dict[str, object] = {}

    def run(device: str, **given: object) -> Calibration:
        asked.update(given)
        return made

    monkeypatch.setattr(room, "calibrate", run)
    result = paceline("calibrate", "--device", "cpu", "--quick", "--seed", "7")
    path = calibration_path(processor_name())
    assert result.code == 0 and f"calibration: {path}" in result.out and "median error 10.0 %" in result.out
    assert load_calibration(path) == made and (asked["quick"], asked["seed"]) == (True, 7)
    assert "(calibrated here)" in paceline("predict", "lenet5", "--set", "device=cpu").out


def test_a_calibration_says_when_and_of_what_it_is():
    made = replace(calibration("cuda"), device_name="NVIDIA A100-SXM4-40GB")
    assert room._origin(made) == {"date": date.today().isoformat(), "catalogue name": "A100 40GB"}
    whole = replace(calibration(), device_name="AMD EPYC 9R14", cores=96)
    assert room._origin(whole)["catalogue name"] == "EPYC 9R14"
    assert "catalogue name" not in room._origin(replace(whole, cores=8))


def test_too_few_trials_to_tell_how_far_it_is_off(paceline, monkeypatch):
    made = calibration(count=2)
    monkeypatch.setattr(room, "calibrate", lambda *given, **others: replace(made, conditions={"trials": "22"}))
    result = paceline("calibrate", "--device", "cpu", "--out", "mine.json")
    assert "22 trials; noise of the machine 10.0 %" in result.out and "nan" not in result.out


def test_another_precision_is_tried_beside_float32(paceline, monkeypatch):
    asked: list[tuple[str, ...]] = []

    def run(device: str, *, precisions: tuple[str, ...], **others: object) -> None:
        asked.append(precisions)
        raise KeyboardInterrupt

    monkeypatch.setattr(room, "calibrate", run)
    paceline("calibrate", "--device", "cpu", "--precision", "bfloat16")
    paceline("calibrate", "--device", "cpu")
    assert asked == [("float32", "bfloat16"), ("float32",)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--precision", "float46"], "precision 'float46' cannot be calibrated: did you mean "),
        (["--precision", "float64"], "precision 'float64' cannot be calibrated: "),
        (["--device", "cpu", "--precision", "tf32"], "precision 'tf32' needs a GPU; calibrate float32 on the CPU"),
        (["--device", "cuda:93"], "device 'cuda:93' is not available"),
        (["--out", "a-file/mine.json"], "--out a-file/mine.json cannot be written: "),
        (["--json", "."], "--json . is a directory; name a file"),
    ],
)
def test_mistakes_are_answered_before_the_work(paceline, monkeypatch, arguments, expected):
    monkeypatch.setattr(room, "sample_shape", lambda *given: pytest.fail("it went to work"))
    Path("a-file").touch()
    assert expected in paceline("calibrate", *arguments).refused()


def test_a_busy_machine_is_said_when_the_work_begins(paceline, monkeypatch):
    real, calls = room.sample_shape, []

    def stop(*given: Any) -> Any:
        calls.append(given)
        if len(calls) > 1:
            raise InputError("it went to work")
        return real(*given)

    monkeypatch.setattr("paceline.busy_machine.busy_now", lambda: "this machine is busy (load 9 on 2 cores)")
    monkeypatch.setattr(room, "sample_shape", stop)
    said = paceline("calibrate", "--quick", "--device", "cpu").err.splitlines()
    assert said == ["warning: this machine is busy (load 9 on 2 cores)", "paceline: it went to work"]
    assert "busy" not in paceline("calibrate", "--precision", "int4").refused()


def test_without_a_terminal_progress_is_said_now_and_then(capsys, monkeypatch):
    from paceline.cli import console

    monkeypatch.setattr(console, "monotonic", iter((0.0, 5.0, 11.0, 11.0, 12.0)).__next__)
    with console.progress_bar(console.console_for(None), "calibrating") as advance:
        for done in (0.1, 0.2, 0.3):
            advance(done)
    assert capsys.readouterr().err == "calibrating: 20 %\n"


def test_other_systems_are_refused_in_one_line(capsys, monkeypatch):
    import sys

    from paceline.cli import entry

    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit) as ended:
        entry()
    assert ended.value.code == 1 and capsys.readouterr().err == "paceline: Paceline needs Linux, and this is darwin\n"
