"""A device that was never calibrated is predicted from its data sheet and a similar device, with wider intervals."""

from __future__ import annotations

import os
from dataclasses import replace
from math import log

import pytest

import paceline.cost.device_calibration as room
from paceline import record
from paceline.cluster import Device, Peak, find_device, known_devices
from paceline.cost.calibration import Calibration, StepOverheads, TrialSet
from paceline.cost.calibrations import bundled_calibrations, calibration_path
from paceline.cost.device_calibration import (
    OTHER_FAMILY_LOG_SD,
    OTHER_PRECISION_LOG_SD,
    SAME_FAMILY_LOG_SD,
    calibration_of_device,
    data_sheet_of,
    find_catalogue_device,
    with_precision,
)
from paceline.cost.device_scaling import scaled
from paceline.cost.families import FAMILIES
from paceline.cost.model import CostModel
from paceline.cost.predicting import predict
from paceline.cost.prediction import Prediction
from paceline.cost.workload_tracing import DataShape
from paceline.errors import InputError
from paceline.workload import Workload, resolve
from tests.cost.invented import Law, calibration

IMAGES = DataShape("image", (3, 224, 224), 1000, 1024)
GPUS = [device for device in known_devices() if device.kind == "gpu"]


def on(device: Device | str, network: str = "lenet5", **settings: object) -> Prediction:
    small = DataShape("image", (1, 28, 28), 10, 60_000)
    data = small if network == "lenet5" else IMAGES
    return predict(resolve(network, settings), device, data=data)


def width(made: Prediction) -> float:
    return log(made.high_s / made.low_s)


def h200_with(**changes: object) -> Device:
    """One that differs from the calibrated H200 by what is given."""
    return replace(find_device("H200"), name="its cousin", **changes)  # type: ignore[arg-type]


def test_a_calibrated_device_is_not_scaled():
    found, name, basis, extra_log_sd = calibration_of_device(find_device("H200"))
    assert found is bundled_calibrations()["H200"] and (name, basis, extra_log_sd) == (
        "H200",
        "calibrated elsewhere",
        0.0,
    )


def test_the_same_data_sheet_gives_the_same_times_with_wider_intervals():
    own, cousin = on("H200"), on(h200_with())
    assert cousin.iteration_s == pytest.approx(own.iteration_s, rel=1e-6)
    assert width(cousin) > width(own) and "H200" in cousin.basis and cousin.device == "its cousin"


def trials_of(found: Calibration) -> dict[tuple[str, tuple[int, ...]], float]:
    return {(t.family, t.sizes): t.seconds for t in found.sets[0].trials}


def test_large_products_go_by_the_peak_and_large_copies_by_the_bandwidth():
    own = trials_of(bundled_calibrations()["H200"])
    peak = find_device("H200").peak
    slow = trials_of(
        calibration_of_device(h200_with(peak=replace(peak, float32=(peak.float32 or 0) / 4), year=2000))[0]
    )
    narrow = trials_of(calibration_of_device(h200_with(memory_bandwidth=1.2e12))[0])

    def ratio(made: dict[tuple[str, tuple[int, ...]], float], family: str) -> float:
        """Of the one of the largest trials that comes closest to what the device can do."""
        largest = sorted((key for key in own if key[0] == family), key=lambda key: own[key])[-8:]
        best = max(largest, key=lambda key: max(FAMILIES[family].work_of(key[1])) / own[key])
        return made[best] / own[best]

    # The cousin of 2000 would have fewer lanes and feed them all.
    assert ratio(slow, "matmul") == pytest.approx(4 * 0.73 / 0.93, rel=0.1) and ratio(slow, "copy") < 1.05
    assert ratio(narrow, "copy") == pytest.approx(4, rel=0.1) and ratio(narrow, "matmul") < 1.2


def test_small_operations_have_costs_that_do_not_scale():
    own = trials_of(bundled_calibrations()["H200"])
    slow = trials_of(calibration_of_device(h200_with(memory_bandwidth=1.2e12, peak=Peak(float32=67e12 / 4)))[0])
    small, large = (pick((k for k in own if k[0] == "add"), key=lambda k: k[1]) for pick in (min, max))
    assert slow[small] / own[small] < 0.6 * slow[large] / own[large]
    assert all(slow[key] >= 0.99 * own[key] for key in own)


def test_a_similar_device_has_a_narrower_interval():
    relative = h200_with(memory_bandwidth=4e12)
    stranger = replace(relative, relative="another architecture")
    assert (calibration_of_device(relative)[3], calibration_of_device(stranger)[3]) == (
        SAME_FAMILY_LOG_SD,
        OTHER_FAMILY_LOG_SD,
    )
    assert width(on("H200")) < width(on(relative)) < width(on(stranger))


@pytest.mark.parametrize("device", GPUS, ids=lambda device: device.name)
def test_every_gpu_of_the_catalogue_can_be_predicted(device):
    made = on(device)
    assert 0 < made.low_s < made.iteration_s < made.high_s
    assert made.device == device.name
    assert int(made.conditions["device memory"]) == pytest.approx(device.memory_bytes, rel=0.02)


def test_slower_gpus_come_out_slower():
    took = {name: on(name, "resnet50", batch=32).iteration_s for name in ("H200", "H100", "A100", "L4", "T4", "K80")}
    assert list(took.values()) == sorted(took.values()) and len(set(took.values())) == len(took)


def test_resnet50_is_close_to_published_times():
    """Training in float32 at batch 128 on a V100 takes 0.34 s (374 images/s) by NVIDIA's and others' figures."""
    made = on("V100", "resnet50", batch=128)
    assert made.low_s < 0.342 < made.high_s


def test_a_calibration_is_scaled_once():
    device = h200_with(memory_bandwidth=2e12)
    assert calibration_of_device(device)[0] is calibration_of_device(device)[0]


def test_a_device_without_a_peak():
    nothing = Device("a mystery", "gpu", Peak(), memory_bandwidth=1e12)
    with pytest.raises(InputError, match="the data sheet of a mystery gives no peak that H200 was calibrated for"):
        calibration_of_device(nothing)


def test_half_precision_on_an_h200_was_calibrated():
    single, *halves = (
        on("H200", "resnet50", batch=32, precision=p) for p in ("float32", "bfloat16", "float16")
    )  # fmt: skip
    assert all(half.basis == "calibrated elsewhere" for half in halves)
    assert halves[0].iteration_s < 0.7 * single.iteration_s
    assert halves[1].iteration_s == pytest.approx(halves[0].iteration_s, rel=1e-3)  # float16 also scales the loss


@pytest.mark.parametrize("precision", ["tf32"])
def test_a_precision_that_was_not_calibrated_is_faster_and_less_certain(precision):
    single, other = (on("H200", "resnet50", batch=32, precision=p) for p in ("float32", precision))
    assert other.iteration_s < 0.7 * single.iteration_s and other.roofline_s < 0.6 * single.roofline_s
    assert width(other) > width(single)
    assert other.basis == f"calibrated elsewhere; {precision} from float32 by its data sheet"
    assert (
        with_precision(calibration_of_device(find_device("H200")), find_device("H200"), precision)[3]
        == OTHER_PRECISION_LOG_SD
    )


def test_half_precision_halves_memory_traffic_too():
    source = find_device("H200")
    single = replace(calibration("cuda", LAW), device_name="NVIDIA H200")
    half, *_ = with_precision((single, "H200", "calibrated", 0.0), source, "bfloat16")
    model, size = CostModel(half, "bfloat16"), (1 << 22,)
    assert model.seconds("copy", size, "bfloat16") == pytest.approx(model.seconds("copy", size) / 2, rel=0.2)


def test_trials_in_the_precision_itself_are_preferred():
    single = bundled_calibrations()["H200"]
    tried = TrialSet("tf32", 0, single.sets[0].trials, single.sets[0].shapes)
    both = replace(single, sets=(*single.sets, tried))
    assert with_precision((both, "x", "calibrated", 0.0), None, "tf32") == (both, "x", "calibrated", 0.0)


def test_a_precision_that_no_data_sheet_gives():
    with pytest.raises(InputError, match=r"V100 .* was not calibrated for tf32, and no data sheet gives its peak"):
        on("V100", precision="tf32")
    own = calibration("cuda")
    with pytest.raises(InputError, match=r"run `paceline.calibrate\(precision='bfloat16'\)` on it"):
        predict(Workload("lenet5", precision="bfloat16"), own, data=IMAGES)
    with pytest.raises(InputError, match="precision 'float64' cannot be predicted"):
        on("H200", precision="float64")
    with pytest.raises(InputError, match="precision 'tf32' needs a GPU"):
        predict(Workload("lenet5", precision="tf32"), calibration("cpu"), data=IMAGES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "H200"), ("NVIDIA A100-SXM4-80GB", "A100 80GB"), ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("AMD EPYC 7763 64-Core Processor", "EPYC 7763"),
        ("Intel(R) Xeon(R) Platinum 8480+", "Xeon Platinum 8480+"), ("AMD EPYC", None), ("something", None),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"), ("Tesla K80", "K80 half"), ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"), ("NVIDIA L4", "L4"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"), ("12th Gen Intel(R) Core(TM) i7-12700K", "i7-12700K"),
        ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "Xeon Platinum 8375C"),
    ],
)  # fmt: skip
def test_system_names_are_recognised(name, expected):
    found = find_catalogue_device(name)
    assert (found.name if found else None) == expected


def test_a_calibration_finds_its_data_sheet():
    assert data_sheet_of(bundled_calibrations()["H200"]) is find_device("H200")
    assert data_sheet_of(calibration()) is None
    scaled = calibration_of_device(find_device("A100"))[0]
    assert data_sheet_of(scaled) is find_device("A100")


LAW = Law(fixed_s=1e-7, flops=1e11, bytes=2e10)


@pytest.fixture
def no_bundled_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "bundled_calibrations", lambda: {"H200": bundled_calibrations()["H200"]})


def test_a_cpu_is_compared_with_a_cpu():
    larger, smaller = (on(name, "alexnet", batch=8) for name in ("EPYC 9654", "i7-3820"))
    assert larger.iteration_s < smaller.iteration_s and (larger.threads, smaller.threads) == (96, 4)
    assert "vCPU, the most similar calibrated device" in larger.basis and larger.step == "flat"


def test_without_any_calibrated_cpu_the_error_says_to_calibrate(no_bundled_cpu):
    with pytest.raises(InputError, match="no calibrated CPU to predict EPYC 7763 from: run paceline"):
        calibration_of_device(find_device("EPYC 7763"))


def test_a_cpu_is_scaled_from_the_one_calibrated_here(no_bundled_cpu):
    here = calibration("cpu", LAW, step_overheads={"flat": StepOverheads()})
    record.save(here, calibration_path(here.device_name))
    target = Device("a larger one", "cpu", Peak(float32=8e11 / 0.8), memory_bandwidth=8e10 / 0.85, cores=8)
    found, name, basis, extra_log_sd = calibration_of_device(target)
    assert name == "a larger one" and here.device_name in basis and extra_log_sd > OTHER_FAMILY_LOG_SD
    assert [trials.threads for trials in found.sets] == [1, 2, 4, 8]
    assert found.peak_flops == pytest.approx(8e11) and found.peak_bytes == pytest.approx(8e10) and found.cores == 8
    product = (1, 512, 512, 512, 0, 1)
    one, all_ = (CostModel(found, threads=threads).seconds("matmul", product) for threads in (1, 8))
    # Eight times the speed in all, on four times the cores: twice the speed of one.
    assert one == pytest.approx(LAW.seconds("matmul", product) / 2, rel=0.25)
    assert all_ == pytest.approx(LAW.seconds("matmul", product) / 8, rel=0.25)


AN_A100 = "NVIDIA A100-SXM4-40GB"


def own_gpu(name: str = AN_A100) -> Calibration:
    """A calibration of a GPU, kept where calibrations of this machine are."""
    made = replace(bundled_calibrations()["H200"], device_name=name, conditions={})
    record.save(made, calibration_path(name))
    return made


def test_an_own_calibration_is_found_by_the_catalogue_name():
    before = on("A100")
    made = own_gpu()
    found, name, basis, extra_log_sd = calibration_of_device(find_device("A100"))
    assert (found, name, basis, extra_log_sd) == (made, "A100 40GB", "calibrated here", 0.0)
    assert width(on("A100")) < width(before)


def test_an_own_calibration_goes_before_a_bundled_one():
    own_gpu("NVIDIA H200")
    assert calibration_of_device(find_device("H200"))[2] == "calibrated here"


def test_relatives_are_predicted_from_an_own_calibration():
    own_gpu()
    basis = {name: calibration_of_device(find_device(name))[2] for name in ("RTX 3090", "H100", "V100")}
    assert "A100 40GB, the most similar" in basis["RTX 3090"]
    assert all("H200, the most similar" in basis[name] for name in ("H100", "V100"))


def test_the_latest_of_two_calibrations_of_a_device_counts():
    own_gpu()
    latest = own_gpu("NVIDIA A100-PCIE-40GB")
    now = calibration_path(AN_A100).stat().st_mtime_ns
    os.utime(calibration_path(latest.device_name), ns=(now + 10**9, now + 10**9))
    assert calibration_of_device(find_device("A100"))[0] == latest


def test_a_few_cores_are_the_base_for_the_whole_cpu():
    here = replace(calibration("cpu", LAW, step_overheads={"flat": StepOverheads()}), device_name="AMD EPYC 9R14")
    record.save(here, calibration_path(here.device_name))
    found, _, basis, extra_log_sd = calibration_of_device(find_device("EPYC 9R14"))
    assert "AMD EPYC 9R14, the most similar" in basis and found.cores == 96
    assert SAME_FAMILY_LOG_SD < extra_log_sd < 2 * OTHER_FAMILY_LOG_SD
    two = replace(find_device("EPYC 9R14"), cores=2)
    assert calibration_of_device(two)[0] == here


def test_images_with_the_channels_last_are_scaled_to_every_number_of_threads():
    here = calibration()
    images = (replace(each, memory_format="channels_last") for each in here.sets)
    source = Device("two cores", "cpu", Peak(float32=1e11), memory_bandwidth=2e10, cores=2)
    made = scaled(replace(here, sets=(*here.sets, *images)), source, replace(source, name="four cores", cores=4))
    found = [(each.threads, each.memory_format) for each in made.sets]
    assert found == [(n, layout) for layout in ("contiguous", "channels_last") for n in (1, 2, 4)]
