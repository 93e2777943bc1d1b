"""`paceline predict` before anything has run: for this machine, for others, from a measurement; and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from paceline import record
from paceline.cli.predict import SHOWN_LAYERS
from paceline.cost.calibration import StepOverheads
from paceline.cost.calibrations import calibration_path
from paceline.cost.exchange import ExchangeCost
from paceline.cost.predicting import predict
from paceline.cost.prediction import Prediction
from paceline.simulation.divided_prediction import DividedPrediction
from paceline.step.placement import processor_name
from paceline.workload import resolve
from tests.cost.invented import calibration, layer, measurement


@pytest.fixture(autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def calibrated_here(**changes: object) -> None:
    made = replace(calibration(step_overheads={"flat": StepOverheads()}), device_name=processor_name(), **changes)  # type: ignore[arg-type]
    record.save(made, calibration_path(made.device_name))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mlp"], ["mlp at batch 100 on H200 (calibrated elsewhere), step graph, float32", "fc1", "epoch of 1,437"]),
        (["resnet18", "--batch", "8"], ["resnet18 at batch 8", "smaller ones)", "layer1.0.conv1"]),
        (["textlstm"], ["textlstm at batch 32", "Embedding", "LSTM"]),
        (["lenet5", "--data", "synthetic:1x28x28/10:70000"], ["epoch of 70,000 samples"]),
        (["resnet20"], ["epoch of 50,000 samples"]),
        (["mlp", "--set", "options.hidden=4000", "--set", "optimizer=adam"], ["update"]),
        (["lenet5", "--precision", "tf32"], ["tf32 from float32 by its data sheet), step graph, tf32"]),
        (["lenet5", "--step", "flat"], ["step flat"]),
    ],
)
def test_a_workload_on_a_gpu_that_is_not_here(paceline, arguments, words):
    result = paceline("predict", *arguments, "--device", "H200")
    assert result.code == 0, result.err
    for word in [*words, "iteration: ", "90 % interval: ", "samples/s", "memory: ", "roofline estimate: "]:
        assert word in result.out
    assert result.err == "" and not re.search(r"\b(nan|inf|0\.0 µs|not calibrated)\b", result.out)


def test_no_more_layers_than_fit_a_screen_and_their_shares_are_all(paceline):
    result = paceline("predict", "resnet50", "--device", "H200", "--json", "made.json")
    rows = [line for line in result.out.splitlines() if "%" in line and " to " in line and "iteration" not in line]
    assert len(rows) == SHOWN_LAYERS and "smaller ones)" in result.out


def test_another_device_says_what_it_is_based_on(paceline):
    result = paceline("predict", "lenet5", "--device", "a100")
    assert "on A100 40GB (from its data sheet and H200, the most similar calibrated device)" in result.out


def test_too_much_for_a_device_s_memory_is_said(paceline):
    small = paceline("predict", "vgg11", "--device", "P600", "--batch", "64").out
    assert "more than the 2.15 GB of the device" in small
    assert "MORE THAN" not in paceline("predict", "lenet5", "--device", "P600").out


def test_the_result_as_json(paceline):
    result = paceline("predict", "mlp", "--device", "H200", "--json", "-")
    record.save(predict(resolve("mlp"), "H200"), Path("expected.json"))
    assert result.json["kind"] == "prediction" and "iteration: " in result.err
    paceline("predict", "mlp", "--device", "H200", "--json", "made.json")
    assert record.load(Path("made.json")) == record.load(Path("expected.json"))


def test_this_machine_once_it_is_calibrated(paceline):
    line = paceline("predict", "mlp", "--set", "device=cpu").refused()
    assert line == (f"{processor_name()} has no calibration yet: run paceline calibrate, or name another --device")
    calibrated_here()
    for where in ([], ["--device", "cpu"]):
        result = paceline("predict", "mlp", "--set", "device=cpu", *where)
        assert f"on {processor_name()} (calibrated here), step flat, float32, 1 thread" in result.out


def test_a_calibration_s_own_file(paceline):
    record.save(calibration(step_overheads={"flat": StepOverheads()}), Path("mine.json"))
    result = paceline("predict", "lenet5", "--device", "mine.json", "--threads", "2")
    assert "on an invented cpu (calibrated: mine.json), step flat, float32, 2 threads" in result.out


def test_an_operation_that_was_never_tried(paceline):
    Path("own_for_the_command_line.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Odd(nn.Sequential):\n"
        "    def forward(self, x): return torch.cumsum(super().forward(x), 0)\n"
        "def build(): return Odd(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    result = paceline("predict", "own_for_the_command_line:build", "--device", "H200")
    assert "not calibrated: cumsum; treated as a pass over their elements, interval widened" in result.out


@pytest.fixture
def measured() -> Path:
    """Of an H200, at batch 16, twice as slow as predicted."""
    modelled = predict(resolve("lenet5", {"batch": 16, "optimizer": "sgd"}), "H200")
    rows = [layer(x.name, 2 * x.forward_s, 2 * x.backward_s, x.kind) for x in modelled.layers if x.total_s]
    parts = {name: 2 * took for name, took in modelled.parts_s.items() if name not in ("forward", "backward")}
    found = measurement(rows, name="lenet5", batch=16, step="graph", device="cuda", parts=parts)
    Path("run").mkdir()
    record.save(replace(found, device_name="NVIDIA H200"), Path("run/measurement.json"))
    return Path("run")


def test_a_measurement_is_carried(paceline, measured):
    for place in (measured, measured / "measurement.json"):
        result = paceline("predict", place, "--batch", "64", "--json", "made.json")
        assert "lenet5 at batch 64 on H200 (measured at batch 16 on NVIDIA H200; calibrated" in result.out
    made = record.load(Path("made.json"))
    assert isinstance(made, Prediction)
    modelled = predict(resolve("lenet5", {"batch": 64, "optimizer": "sgd"}), "H200")
    assert made.iteration_s == pytest.approx(2 * modelled.iteration_s, rel=0.05)
    assert "on L4 (measured at batch 16" in paceline("predict", measured, "--device", "L4").out


def test_workers_over_a_link(paceline):
    result = paceline(
        "predict", "resnet18", "--device", "H200", "--workers", "4", "--strategy", "sync", "--link", "10 Gb/s Ethernet"
    )
    line = result.out.splitlines()[-1]
    assert line.startswith("4 workers, sync, over 10 Gb/s Ethernet: ") and "efficiency" in line and "bound by" in line


def test_local_workers_by_what_was_calibrated(paceline):
    calibrated_here(exchange=(ExchangeCost("groups=1", 2, 1e-3, 0.0),))
    arguments = ["predict", "mlp", "--device", "cpu", "--strategy", "sync", "--workers"]
    assert "2 local workers, sync: " in paceline(*arguments, "2").out
    assert paceline(*arguments, "2").out.splitlines()[-1].endswith("exchange as calibrated")
    line = paceline(*arguments, "3").out.splitlines()[-1]
    assert "3 local workers, sync: " in line
    assert line.endswith("; exchange simulated (sync was calibrated with 2)")
    other = paceline(*arguments[:-2], "downpour", "--workers", "2").out.splitlines()[-1]
    assert other.endswith("; exchange simulated (downpour was not calibrated: run paceline calibrate --local-workers)")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["mlp", "--device", "H201"], "no device 'H201': did you mean H200 or GH200?"),
        (["mlp", "--device", "zzz"], "no device 'zzz': see paceline catalogue devices"),
        (["mlp", "--device", "missing.json"], "missing.json"),
        (["mlp", "--device", "notes.json"], "notes.json"),
        (["mlp", "--device", "cut.json"], "cut.json"),
        (["mlp", "--device", "measured.json"], "measured.json holds a measurement, not a calibration"),
        (["missing.json"], "missing.json"),
        (["whole.json"], "whole.json holds a calibration, not a measurement"),
        (["cut.json"], "cut.json"),
        (["measured.json", "--precision", "tf32"], "to another batch or device, not to another precision"),
        (["measured.json", "--step", "plain"], "to another batch or device, not to another step"),
        (["measured.json", "--batch", "0"], "batch=0 should be a whole number from 1 to"),
        (["measured.json", "--set", "batch=many"], "batch='many' should be a whole number"),
        (["measured.json", "--batch", "8"], "the measurement is of an invented cpu, which has no calibration here"),
        (
            ["mlp", "--device", "H200", "--workers", "4"],
            "workers on several H200 need a --link between them: see paceline catalogue links",
        ),
        (["mlp", "--device", "H200", "--workers", "4", "--strategy", "snyc", "--link", "NVLink 4"], "'snyc'"),
        (["mlp", "--device", "H200", "--workers", "4", "--strategy", "sync", "--link", "rope"], "no link 'rope'"),
        (
            ["mlp", "--device", "H200", "--step", "compiled"],
            "the calibration of NVIDIA H200 has no ratios for compiled steps",
        ),
        (["mlp", "--device", "H200", "--step", "fast"], "step 'fast' is unknown: "),
        (["mlp", "--device", "H200", "--precision", "float64"], "precision 'float64' cannot be predicted"),
        (["mlp", "--device", "V100", "--precision", "tf32"], "no data sheet gives its peak"),
        (["mlp", "--device", "whole.json", "--precision", "tf32"], "precision 'tf32' needs a GPU"),
        (["mlp", "--device", "H200", "--set", "phases=own:phases"], "no module 'own' here"),
        (["mlp", "--device", "H200", "--batch", "0"], "batch=0 should be a whole number from 1 to"),
        (["mpl", "--device", "H200"], "no network 'mpl': did you mean mlp?"),
        (["vgg16", "--data", "digits", "--device", "H200"], "shape (1, 8, 8) is too small for 'vgg16'"),
        (["mlp", "--data", "text", "--device", "H200"], "network 'mlp' takes image or table data, not text"),
        (["own_mistakes:Deciding", "--device", "H200"], "depends on the values of its data"),
        (["own_mistakes:Mistaken", "--device", "H200"], "own_mistakes:Mistaken cannot be traced: "),
        (["mlp", "--device", "H200", "--json", "."], "--json . is a directory; name a file"),
    ],
    ids=" ".join,
)
def test_mistakes_are_answered_with_one_line(paceline, arguments, expected):
    record.save(measurement([layer("fc1", 1e-6, 1e-6)]), Path("measured.json"))
    record.save(calibration(count=2), Path("whole.json"))
    Path("cut.json").write_text(Path("whole.json").read_text()[:5000])
    Path("notes.json").write_text('{"kind": "shopping", "schema": 1}')
    Path("own_mistakes.py").write_text(
        "from torch import nn\n"
        "class Deciding(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        y = self.layer(x.flatten(1))\n"
        "        return y if y.sum() > 0 else -y\n"
        "class Mistaken(Deciding):\n"
        "    def forward(self, x): return self.layer(x)\n"
    )
    result = paceline("predict", *arguments)
    assert expected in result.refused() and result.out == ""


def test_divided_networks_are_predicted_with_their_traffic(paceline):
    given = ["predict", "vgg11", "--data", "synthetic:3x64x64/10:1000", "--device", "H200", "--link", "NVLink 4"]
    by_feature = paceline(*given, "--tensor", "2", "--out", "made.json").out
    assert "on 2 processes per layer, H200" in by_feature and "MB sent per step" in by_feature
    assert isinstance(record.load(Path("made.json")), DividedPrediction)
    assert "4 workers that share parameters (fsdp)" in paceline(*given, "--shard", "fsdp", "--workers", "4").out
    both = paceline(*given, "--tensor", "2", "--pipeline", "2").refused()
    assert "--pipeline and --tensor are predicted one at a time" in both
