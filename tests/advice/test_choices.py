"""Each choice follows from the task, the data and the hardware, and says why."""

from __future__ import annotations

import dataclasses
import math

import pytest

import paceline as package
from paceline.advice.distribution_choice import _Simulated, _synchronised
from paceline.advice.network_choice import code_size, falling
from paceline.simulation.on_cluster import ClusterOutcome

TABLE = {"kind": "table", "shape": "30", "samples": 5000, "classes": 2}
IMAGES = {"kind": "image", "shape": "3x32x32", "samples": 50_000, "classes": 10}
PHOTOGRAPHS = {"kind": "image", "shape": "3x224x224", "samples": 1_281_167, "classes": 1000}


@pytest.fixture(autouse=True)
def not_calibrated(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_hidden_layers_are_near_the_inputs_and_codes_are_smaller():
    advice = package.advise("classify", **TABLE)
    assert advice.workload.options == {"hidden": [32]}
    assert package.advise("classify", **{**TABLE, "shape": "4"}).workload.options == {"hidden": [16]}
    assert package.advise("classify", **{**TABLE, "shape": "9000"}).workload.options == {"hidden": [2048]}
    sizes = falling(784, code_size(784), 3)
    assert code_size(784) == 20 and 784 > sizes[0] > sizes[1] > sizes[2] > 20


def test_initial_weights_are_about_a_tenth_or_below():
    assert package.advise("classify", **TABLE).workload.init == "small:0.1"  # PyTorch's deviation would be 0.105
    assert package.advise("classify", **{**TABLE, "shape": "34"}).workload.init == "default"  # and here 0.099


def test_little_data_get_a_smaller_batch_and_more_epochs():
    many, few = (package.advise("classify", **{**TABLE, "samples": samples}).workload for samples in (50_000, 150))
    assert many.batch == 100 and many.epochs == 20
    assert few.batch < many.batch and few.epochs > many.epochs


def test_a_larger_batch_where_the_device_is_clearly_faster_with_it():
    small, large = package.advise("classify", **TABLE), package.advise("classify", **TABLE, device="H200")
    assert (small.workload.batch, large.workload.batch) == (100, 200)
    assert "samples/s" in large.choice("batch").reason
    assert large.choice("batch").predicted_s > 0 and math.isnan(small.choice("batch").predicted_s)


def test_of_several_devices_the_fastest():
    advice = package.advise("classify", **IMAGES, device="L4, H200,K80")
    assert advice.choice("device").value == "H200" and "on L4 and" in advice.choice("device").reason


def test_the_time_at_hand_limits_the_epochs():
    free = package.advise("classify", **IMAGES, device="L4")
    tight = package.advise("classify", **IMAGES, device="L4", time=f"{free.predicted_s / 4:.0f}s")
    assert 1 <= tight.workload.epochs <= free.workload.epochs / 4
    assert tight.predicted_s <= free.predicted_s / 4 < free.predicted_s
    late = package.advise("classify", **PHOTOGRAPHS, device="L4", time="1s")
    assert late.workload.epochs == 1 and "even one takes longer" in late.choice("epochs").reason


def test_the_prediction_is_that_of_predict_for_all_the_samples():
    advice = package.advise("compress", data="mnist", device="H200")
    expected = package.predict(advice.workload, "H200")
    assert advice.predicted_s == pytest.approx(expected.epoch_s * advice.workload.epochs)
    assert advice.low_s < advice.predicted_s < advice.high_s


def test_several_devices_share_the_data_where_that_is_faster():
    shared = package.advise("classify", **PHOTOGRAPHS, device="a2-highgpu-8g", devices=8)
    assert shared.choice("parallelism").value == "data" and shared.workers == 8 and shared.strategy == "sync"
    assert shared.train_command("w.toml") == "paceline train w.toml --workers 8 --strategy sync"
    alone = package.advise("classify", **TABLE, device="a2-highgpu-8g", devices=8)
    assert alone.choice("parallelism").value == "none" and alone.workers == 1


def test_a_batch_that_does_not_fit_is_computed_in_pieces():
    advice = package.advise("classify", **PHOTOGRAPHS, device="P600")
    assert advice.workload.batch == 64 and advice.workload.accumulate > 1
    assert "micro-batches" in advice.choice("batch").reason and advice.choice("parallelism").value == "none"
    assert package.predict(advice.workload, "P600").memory_bytes <= 0.9 * 2 * 2**30


def test_a_network_that_does_not_fit_is_divided():
    wide = {"kind": "table", "shape": "100000", "samples": 10**6, "classes": 400_000}
    advice = package.advise("classify", **wide, device="L4", devices=4)
    assert advice.choice("parallelism").value == "model" and advice.pipeline == 2
    assert advice.train_command("w.toml") == "paceline train w.toml --pipeline 2"
    larger = package.advise("classify", **{**wide, "classes": 10**6}, device="L4", devices=4)  # three parts, two layers
    assert larger.train_command("w.toml") == "paceline train w.toml --tensor 4"
    alone = package.advise("classify", **wide, device="L4")
    assert "take a device with more memory" in alone.choice("parallelism").reason


def outcome(step_s: float, epoch_s: float) -> ClusterOutcome:
    return ClusterOutcome(64, 8, step_s, epoch_s, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, None, "USD", "compute")


@pytest.mark.parametrize(
    ("workers", "sync_s", "mixed_s", "expected"),
    [
        (40, 1.0, 1.0, "sync"), (48, 1.0, 1.0, "mixed"), (16, 2.0, 1.0, "mixed"), (64, 1.0, 2.0, "sync"),
        (40, 1.05, 1.0, "sync"), (48, 1.0, 1.05, "mixed"),
    ],
)  # fmt: skip
def test_synchronous_up_to_forty_devices_and_mixed_beyond_unless_the_simulation_says_otherwise(
    workers, sync_s, mixed_s, expected
):
    found = [
        _Simulated(workers, "sync", 1, outcome(sync_s, sync_s)),
        _Simulated(workers, "mixed", 8, outcome(mixed_s, mixed_s)),
    ]
    assert _synchronised(found)[0].strategy == expected


def test_groups_of_machines_are_part_of_the_command():
    advice = package.advise("classify", **TABLE, device="L4")
    grouped = dataclasses.replace(advice, workers=64, machines=8, strategy="mixed", groups=8)
    assert grouped.train_command("w.toml") == (
        "paceline train w.toml --workers 64 --strategy mixed --groups 8x8 --driver ray"
    )


def test_data_are_fetched_ahead_where_they_do_not_stay_on_the_device():
    assert package.advise("classify", **IMAGES, device="H200").choice("prefetching").value == "not needed"
    many = package.advise("classify", **PHOTOGRAPHS, device="H200", devices=8)
    assert many.choice("prefetching").value == "yes" and "PCIe 4.0 x16" in many.choice("prefetching").reason
    assert package.advise("classify", **IMAGES).choice("prefetching").value == "not needed"


def test_what_is_known_of_data_is_read_from_them():
    advice = package.advise("classify", data="digits")
    assert (advice.workload.data, advice.stand_in) == ("digits", False)
    assert package.advise("classify", **TABLE).stand_in


def test_a_file_describes_a_task_and_settings_go_before_it(tmp_path):
    path = tmp_path / "task.toml"
    path.write_text('task = "classify"\nkind = "table"\nshape = "30"\nsamples = 5000\nclasses = 2\nerror = 0.05\n')
    advice = package.advise(path, time=60)
    assert advice.task == package.TaskDescription("classify", **TABLE, error="0.05", time="60s")
    assert package.advise(path, data="digits").workload.data == "digits"
    assert package.advise(advice.task).workload == advice.workload


def test_an_advice_shows_itself():
    advice = package.advise("classify", **TABLE, device="H200")
    assert "feed-forward" in str(advice) and "<table>" in advice._repr_html_() and "mlp" in repr(advice)
