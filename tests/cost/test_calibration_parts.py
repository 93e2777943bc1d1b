"""A calibration that stops continues where it was, and is fitted where there is no GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import paceline.cost.calibrating as room
import paceline.cost.reference_measuring as references
from paceline.api.calibrate import calibrate
from paceline.cost.calibration import CompiledRatio, TrialSet
from paceline.cost.calibration_parts import CalibrationParts, DevicePart, TrialPart
from paceline.errors import InputError
from paceline.measurement.links import LinkMeasurement, LinkSpeed
from paceline.measurement.network_times import NetworkTimes
from tests.cost.invented import calibration

INVENTED = calibration("cuda", count=8)
GPU = DevicePart("cuda", "NVIDIA H200", 16, 8 << 30, 5e13, 4e12, "2026-01-01", "2.11", "3.12")
LINK = LinkSpeed("disk to host", 1e-4, 1e9)


class FakeGpu:
    """Answers what a calibration measures on a GPU, and counts it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.measured: list[str] = []
        self.fails_at = ""
        monkeypatch.setattr(room, "_device_part", lambda place: GPU)
        monkeypatch.setattr(room, "_trial_part", self.trials)
        monkeypatch.setattr(references, "time_network", self.network)
        monkeypatch.setattr(room, "compiled_ratios", self.compiled)
        monkeypatch.setattr(room, "measure_links", lambda place: LinkMeasurement((LINK,), {}))
        monkeypatch.setattr(references, "REFERENCES", {"cuda": {"perceptron": ("synthetic:3x40x40/10:64", (8, 16))}})

    def trials(self, place: Any, asked: Any, *others: Any) -> TrialPart:
        self._see(asked.name)
        made = TrialSet(asked.precision, 0, INVENTED.sets[0].trials)
        return TrialPart(replace(made, memory_format="channels_last" if asked.channels_last else "contiguous"), 0.1)

    def network(self, workload: Any, step: str) -> NetworkTimes:
        self._see(f"{workload.batch} {step} {workload.precision}")
        host_s = 0.0 if step == "graph" else 1e-3
        return NetworkTimes(
            workload.network, workload.batch, step, workload.precision, workload.data, "sgd", 2e-3,
            {"1": (1e-4, 2e-4)}, {"update": 1e-5}, host_s=host_s,
        )  # fmt: skip

    def compiled(self, place: Any, precisions: Any) -> tuple[dict[str, CompiledRatio], str]:
        self._see("compiled")
        return {"any": CompiledRatio("graph", 0.7, 0.3, ("a",))}, ""

    def _see(self, name: str) -> None:
        if name == self.fails_at:
            raise KeyboardInterrupt
        self.measured.append(name)


def test_an_interrupted_calibration_measures_each_part_once(monkeypatch, tmp_path):
    CalibrationParts(tmp_path / "parts").make("device", DevicePart, lambda: GPU)
    gpu = FakeGpu(monkeypatch)
    for stop in ("bfloat16 0 contiguous", "16 plain float32", "compiled"):
        gpu.fails_at = stop
        with pytest.raises(KeyboardInterrupt):
            calibrate(resume=tmp_path / "parts", out=tmp_path)
    gpu.fails_at = ""
    found = calibrate(resume=tmp_path / "parts", out=tmp_path)
    assert len(gpu.measured) == len(set(gpu.measured)) == 4 + 2 * 2 * 3 + 1
    assert {(each.precision, each.memory_format) for each in found.sets} == {
        (precision, layout) for precision in ("float32", "bfloat16") for layout in ("contiguous", "channels_last")
    }
    assert found.device_name == "NVIDIA H200" and found.conditions["date"] == "2026-01-01"
    assert found.links == (LINK,) and len(found.references) == 12 and found.compiled["any"].ratio == 0.7
    assert "compiled 0 s" in found.conditions["took"]  # only what the last command measured
    assert "trials" not in found.conditions["took"]
    before = list(gpu.measured)
    assert calibrate(resume=tmp_path / "parts", out=tmp_path).step_overheads == found.step_overheads
    assert gpu.measured == before  # a complete one is only fitted


def test_no_part_is_begun_after_the_time_is_over(monkeypatch, tmp_path):
    now = iter((0.0, 10.0, 20.0, 500.0, 501.0, 502.0, 503.0))
    monkeypatch.setattr("paceline.cost.calibration_parts.perf_counter", lambda: next(now))
    parts = CalibrationParts(tmp_path, minutes=1.0)
    assert parts.make("a", int, lambda: 1) == 1
    with pytest.raises(InputError, match=r"not complete after 1 minutes: run the same command again.* with b"):
        parts.make("b", int, lambda: 2)
    assert CalibrationParts(tmp_path).get("a", int) == 1 and CalibrationParts(tmp_path).get("b", int) is None


def test_a_damaged_part_is_named(tmp_path):
    (tmp_path / "device.json").write_text("{")
    with pytest.raises(InputError, match=r"device.json is no part of a calibration .* remove it"):
        CalibrationParts(tmp_path).measured_on()


@pytest.mark.parametrize("settings", [{"minutes": 5.0}, {"minutes": 0.0, "resume": Path("parts")}])
def test_minutes_need_a_directory_to_continue_in(settings):
    with pytest.raises(InputError, match=r"minutes=.* needs to be above 0, and `resume` a directory"):
        calibrate("cpu", **settings)


def test_the_facts_of_this_machine_are_kept(tmp_path):
    place = torch.device("cpu")
    made = CalibrationParts(tmp_path).make("device", DevicePart, lambda: room._device_part(place))
    assert CalibrationParts(tmp_path).get("device", DevicePart) == made
    assert CalibrationParts(tmp_path).measured_on() == "cpu" and made.flops > 0
