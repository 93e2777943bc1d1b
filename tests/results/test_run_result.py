"""Runs are told apart by as few settings as that takes, and put together where only their seeds differ."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from paceline.reporting.colours import group_styles
from paceline.reporting.sections.scaling import scaling, scaling_sentence
from paceline.reporting.series import all_seconds_to_accuracy, seconds_to_accuracy, series_by_workers, target_accuracy
from paceline.results.records import Records
from paceline.results.run_result import RunResult, measurement_names, run_results
from paceline.training.run import Run
from tests.a_run import a_run
from tests.reporting.examples import a_distribution, a_measurement, a_simulation, a_virtual_run


def shown(*runs: Run) -> tuple[RunResult, ...]:
    return run_results(Records(runs=[(f"runs/{i}", run) for i, run in enumerate(runs)]))


def labels(*runs: Run) -> list[str]:
    return [run.label for run in shown(*runs)]


def test_one_run_is_called_by_its_network_and_data():
    assert labels(a_run()) == ["lenet5 on digits"]


def test_runs_are_called_by_what_differs_in_a_natural_order():
    runs = [a_virtual_run(s, w) for s in ("sync", "downpour") for w in (16, 2, 1)]
    assert labels(*runs) == [
        "downpour · 1 worker", "downpour · 2 workers", "downpour · 16 workers",
        "sync · 1 worker", "sync · 2 workers", "sync · 16 workers",
    ]  # fmt: skip


def test_a_setting_that_tells_nothing_new_is_not_in_the_names():
    other = replace(a_run().workload, network="mlp", lr=0.5, batch=8, optimizer="adam")
    assert labels(a_run(), a_run(workload=other)) == ["lenet5", "mlp"]
    slower = replace(a_run().workload, lr=0.01)
    assert labels(a_run(), a_run(workload=slower)) == ["lr 0.01", "lr 0.1"]


def test_seeds_are_repetitions():
    runs = shown(*(a_virtual_run("sync", w, seed) for w in (2, 4) for seed in (0, 1)))
    assert [run.group for run in runs] == ["2 workers", "2 workers", "4 workers", "4 workers"]
    assert runs[1].label == "2 workers · seed 1"
    same = shown(a_virtual_run(), a_virtual_run())
    assert len({run.label for run in same}) == 2, "even the same run twice is two"


def test_colours_and_dashes_tell_two_settings_apart():
    runs = shown(*(a_virtual_run(s, w) for s in ("sync", "downpour") for w in (2, 4, 8)))
    assert group_styles(runs)["styles"]["sync · 4 workers"] == [1, 1]
    assert group_styles(shown(a_virtual_run("sync", 2), a_virtual_run("sync", 4))) == {}


def test_measurements_have_names_as_short_as_tells_them_apart():
    def names(*found):
        return [name for name, _ in measurement_names(Records(measurements=list(found)))]

    m = a_measurement()
    assert names() == [] and names(("a", m)) == ["alexnet"]
    assert names(("a", m), ("b", replace(m, batch=64))) == ["alexnet · batch 8", "alexnet · batch 64"]
    assert names(("a", m), ("b", m)) == ["alexnet · a", "alexnet · b"]
    workers = ("runs/a/measure/worker-0", m), ("runs/a/measure/worker-1", m)
    assert names(*workers) == ["alexnet · worker-0", "alexnet · worker-1"]
    assert names(workers[0], ("runs/b/measure/worker-0", m)) == [
        "alexnet · a/measure/worker-0",
        "alexnet · b/measure/worker-0",
    ]


def test_efficiency_is_speed_up_by_workers():
    runs = shown(*(a_virtual_run("downpour", w, seed) for w in (2, 4, 8) for seed in (0, 1)))
    (line,) = series_by_workers(runs)
    assert [point.workers for point in line.points] == [2, 4, 8] and len(line.points[0].runs) == 2
    assert line.efficiency(line.points[0]) == 1
    speed = (0.1 + 0.9 / 2) / (0.1 + 0.9 / 8)
    assert line.speed_up(line.points[2]) == pytest.approx(speed)
    assert line.efficiency(line.points[2]) == pytest.approx(speed / 4)
    assert scaling_sentence([line]) == (
        "In simulation, downpour trains 2.6 times as fast with 8 workers as with 2; the efficiency is 65 %."
    )


def test_runs_with_one_number_of_workers_do_not_scale():
    assert series_by_workers(shown(a_virtual_run("sync", 4), a_virtual_run("downpour", 4))) == []
    assert scaling(shown(a_run(), a_run())) is None


def test_one_process_is_where_real_workers_begin():
    d = a_distribution("sync", 2, driver="local")
    two = a_run(distribution=d, samples_per_s=3000.0)
    (line,) = series_by_workers(shown(a_run(samples_per_s=2000.0), two))
    assert [point.workers for point in line.points] == [1, 2] and line.speed_up(line.points[1]) == 1.5
    other = replace(a_run(samples_per_s=2000.0), workload=replace(a_run().workload, batch=8))
    assert series_by_workers(shown(other, two)) == [], "other work is no beginning"


def test_more_workers_that_do_not_help_are_told_so():
    runs = [replace(a_virtual_run("sync", w), distribution=a_distribution("sync", w, seconds=w * 10.0)) for w in (2, 4)]
    assert (
        scaling_sentence(series_by_workers(shown(*runs)))
        == "In simulation, training with sync is fastest with 2 workers."
    )


def test_runs_that_did_not_end_are_no_part_of_scaling():
    runs = [a_virtual_run("sync", 2), a_virtual_run("sync", 4, status="diverged")]
    assert series_by_workers(shown(*runs)) == []


def test_the_time_to_an_accuracy_that_half_of_the_runs_reach():
    runs = shown(*(a_virtual_run("downpour", w) for w in (2, 4, 8)))
    assert target_accuracy(runs) == 0.88
    assert seconds_to_accuracy(runs[0], 0.88) == runs[0].curve[-1].seconds and math.isnan(
        seconds_to_accuracy(runs[2], 0.88)
    )
    assert math.isnan(target_accuracy(()))
    assert all_seconds_to_accuracy(runs, 0.88) and all_seconds_to_accuracy(runs[1:], 0.89) == [], (
        "fewer than half are not enough"
    )


def test_a_simulation_of_time_stands_beside_runs():
    records = Records(runs=[("a", a_virtual_run("sync", 2))], simulations=[("b", a_simulation(50))])
    assert {run.driver for run in run_results(records)} == {"simulated", "simulated time only"}


def test_updates_of_a_run_that_was_interrupted_are_not_made_up():
    (run,) = shown(a_run(status="interrupted"))
    assert all(math.isnan(point.updates) for point in run.curve) and run.curve[1].seconds == 4.0
    assert [point.updates for point in shown(a_run())[0].curve] == [23, 46]
