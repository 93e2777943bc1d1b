"""Sections that compare: against a setting, a model, a published line, another way of feeding, and without looking."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.measurement.feeding import IMAGES, STAND_INS, Feeding
from paceline.measurement.measurement import LayerSample, Spread
from paceline.reporting.figure import value_of
from paceline.reporting.sections.batch_model import fit_batch_models
from paceline.reporting.sections.feeding import expected_s
from paceline.reporting.sections.overhead import unattributed_sentence
from paceline.reporting.sections.scaling import UNIT, per_sample, savings
from paceline.reporting.series import seconds_to_loss, series_by_workers, target_loss
from paceline.results.comparison_rows import ExtraTable, PublishedRow
from paceline.results.records import Records
from paceline.results.run_result import MEASURED, run_results
from paceline.strategy.distribution import WorkerRecord
from paceline.strategy.presets import find_strategy
from paceline.trace import Span, Trace
from paceline.training.run import Run
from paceline.workload import Workload
from tests.a_run import a_run
from tests.reporting.examples import a_distribution, a_measurement, a_virtual_run
from tests.reporting.test_sections import figures, made, rows

BATCH_S, SAMPLE_S, SAMPLES = 0.002, 1e-5, 4000


def with_batch(batch: int, seed: int = 0, dropout: float = 0.0) -> Run:
    """An epoch takes what every batch costs, and what its samples cost."""
    seconds = SAMPLES / batch * BATCH_S + SAMPLES * SAMPLE_S
    workload = Workload(network="mlp", batch=batch, epochs=2, seed=seed, dropout=dropout)
    spans = tuple(Span("main", "train", 10.0 * e, 10.0 * e + seconds, f"epoch {e + 1}") for e in range(2))
    return a_run(
        workload=workload, updates=2 * SAMPLES // batch, train_s=2 * seconds, trace=Trace(spans), test_accuracy=0.9,
    )  # fmt: skip


def records(*runs: Run, **more: object) -> Records:
    return Records(runs=[(f"r{place}", run) for place, run in enumerate(runs)], **more)


def test_accuracy_and_time_against_a_setting_that_differs():
    found = records(*(with_batch(batch, seed) for batch in (100, 500, 2000) for seed in range(2)))
    section = made(found)["by-setting"]
    assert section.sentences[0].startswith("An epoch takes 120 ms and 44.0 ms at batch size 100 and 2000; ")
    drawn = figures(found)
    assert [view.name for view in drawn["learned-by-batch"].views] == [
        "test accuracy",
        "training accuracy",
        "test loss",
    ]
    data = drawn["time-by-batch"].views[0].table
    assert data.values("batch size") == [100, 500, 2000] and data.values("repetitions") == [2, 2, 2]
    assert data.values("epoch time")[0] == pytest.approx(0.12)
    assert "by-setting" not in made(records(with_batch(100), with_batch(500))), "two values are no line"


def test_the_model_of_batches_is_found_again():
    found = records(*(with_batch(batch) for batch in (100, 500, 1000, 2000)))
    (fitted,) = fit_batch_models(run_results(found))
    assert (fitted.model.batch_s, fitted.model.sample_s) == pytest.approx((BATCH_S, SAMPLE_S))
    assert fitted.model.communication_share(100) == pytest.approx(2 / 3)
    section = made(found)["batch-model"]
    assert "66.7 % of the epoch time at batch size 100" in section.sentences[0]
    (row,) = rows(section, "batch-model-parameters")
    assert row[1:5] == (1, SAMPLES, pytest.approx(2.0), pytest.approx(10.0))
    assert row[-1] == pytest.approx(0.0, abs=1e-6)


def test_nothing_is_said_of_batches_where_larger_ones_are_not_faster():
    slower = [replace(with_batch(batch), trace=Trace(), train_s=2 * batch / 1000) for batch in (100, 500, 2000)]
    section = made(records(*slower))["batch-model"]
    said = "The epoch times of mlp do not fit the time model: there is no estimate of the overhead."
    assert section.sentences[0] == said
    ((*_, batch_ms, _, small, large, _),) = rows(section, "batch-model-parameters")
    assert batch_ms is small is large is None, "no number stands where there is none"


def test_every_tower_has_a_line():
    d = a_distribution("towers", 2, driver="local")
    workers = tuple(WorkerRecord(w, accuracies=(0.5 + 0.1 * w, 0.7 + 0.1 * w)) for w in range(2))
    together = a_run(distribution=replace(d, by_worker=workers))
    drawn = figures(records(a_run(), together))["worker-accuracy"]
    lines = drawn.views[0].table
    assert list(dict.fromkeys(lines.values("line"))) == ["one process", "towers, worker 0", "towers, worker 1"]
    assert lines.values("training accuracy")[-1] == pytest.approx(80.0) and "worker 1 80" in drawn.words
    assert "worker-accuracy" not in figures(records(a_run(), a_run(distribution=d))), "workers that told nothing"
    one = replace(d, workers=1, by_worker=workers[:1])
    alone = a_run(distribution=one, workload=replace(a_run().workload, lr=0.5))
    views = figures(records(together, alone))["worker-accuracy"].views
    assert [view.table.values("line")[0] for view in views] == ["2 workers, worker 0"], "a view has several workers"


def test_rates_that_follow_from_the_workers_make_one_line():
    runs = [a_virtual_run("sync", workers) for workers in (1, 2, 4)]
    runs = [replace(run, workload=replace(run.workload, lr=0.1 * 2**place)) for place, run in enumerate(runs)]
    (line,) = series_by_workers(run_results(records(*runs)))
    assert [point.workers for point in line.points] == [1, 2, 4] and line.name == "sync"
    assert [n for n, _ in savings(line, per_sample)] == [2, 4]
    two_rates = [replace(run, workload=replace(run.workload, lr=0.5)) for run in runs]
    (line,) = series_by_workers(run_results(records(*runs, *two_rates)))
    told = {run.settings["lr"] for point in line.points for run in point.runs}
    assert told == {"0.5"}, "not where there are several rates for a number of workers"


def test_doubling_is_drawn_beside_what_others_published():
    runs = [a_virtual_run("sync", workers) for workers in (1, 2, 4, 8)]
    found = records(*runs, published=[PublishedRow("Caffe", 28.0, unit=UNIT, line="Caffe")])
    table = figures(found)["doubling"].views[0].table
    assert set(table.values("runs")) == {"sync", "Caffe, published"}
    assert table.values("saved")[-2:] == [28.0, 28.0] and table.values("workers")[-2:] == [2, 8]


def test_time_to_a_loss_lies_between_the_tests():
    (run,) = run_results(records(a_virtual_run("sync", 1)))
    first, second = run.curve[:2]
    between = (first.test_loss + second.test_loss) / 2
    assert seconds_to_loss(run, between) == pytest.approx((first.seconds + second.seconds) / 2)
    assert seconds_to_loss(run, 100.0) == first.seconds and seconds_to_loss(run, 0.0) != seconds_to_loss(run, 0.0)
    diverged = replace(run, row={**run.row, "test_loss": 50.0})
    assert target_loss([run, run, diverged]) == pytest.approx(run.loss, rel=0.1)


def test_published_figures_along_an_axis_are_lines():
    points = [
        PublishedRow(f"{name}, {t} threads", s, 0.5 / t, "s", "x", along="threads", at=t, line=name, our_line="ours")
        for name in ("a", "b")
        for t, s in ((2, 0.6), (1, 1.0))
    ]
    figure = figures(Records(published=[*points, PublishedRow("c", 1.0, 2.0, "%")]))["published-lines"]
    (view,) = figure.views
    assert view.table.values("line") == ["a, published", "b, published"] * 2 + ["ours", "ours"]
    assert view.table.values("threads") == [1, 1, 2, 2, 1, 2], "in the order of the axis"
    assert view.options["styles"]["a, published"][1] == 1 and view.options["styles"]["ours"][1] == 0


def a_feeding(devices: int, ahead: bool, seconds: float, what: str = STAND_INS) -> Feeding:
    conditions = {"network": "lenet5", "batch": "32"} if what == IMAGES else {}
    return Feeding(what, devices, ahead, 0.25, 0.5, 20, Spread(seconds, seconds, seconds, seconds), 0.1, conditions)


def test_feeding_is_shown_beside_its_arithmetic():
    found = [a_feeding(1, False, 0.76), a_feeding(1, True, 0.5), a_feeding(4, False, 1.0), a_feeding(4, True, 1.0)]
    assert [expected_s(made) for made in found] == [0.75, 0.5, 1.0, 1.0]
    images = [a_feeding(1, ahead, 0.6, IMAGES) for ahead in (False, True)]
    section = made(Records(feedings=[("f", one) for one in (*found, *images)]))["feeding"]
    assert section.sentences[0] == (
        "Prefetching shortens an iteration by 34 % with 1 emulated device on one bus; from 4 devices on, the bus "
        "is saturated and it does not help."
    )
    assert [block.id for block in section.blocks] == ["feeding-bus", "feeding-images", "feeding-rows"]
    assert len(rows(section, "feeding-rows")) == 6


def test_training_with_and_without_measuring():
    with_clock = a_run(train_s=3.3, workload=Workload(network="alexnet", batch=8))
    without = replace(with_clock, train_s=3.0)
    sample = tuple(LayerSample(n, "conv1", 0.1, 0.2, 0.0) for n in range(3))
    m = a_measurement(accounted=0.97, samples=sample)
    found = Records(runs=[("a", without), ("b", with_clock)], measurements=[("b/measure", m)])
    assert [run.settings[MEASURED] for run in run_results(found)] == ["False", "True"]
    section = made(found)["overhead"]
    ((name, repetitions, without_s, with_s, more, *_),) = rows(section, "overhead-rows")
    assert (name, repetitions, without_s, with_s) == ("alexnet, batch 8", 1, 3.0, 3.3)
    assert (
        more == pytest.approx(10.0) and "At most 3.0 % of an iteration could not be attributed" in section.sentences[1]
    )
    assert [view.name for view in figures(found)["layers-by-iteration"].views] == [
        "alexnet, forward",
        "alexnet, backward",
    ]
    assert "trainings were not repeated" in section.sentences[0]
    several = [("m", replace(m, accounted=share)) for share in (0.97, 1.01, 0.6)]
    assert unattributed_sentence(several) == (
        "In half of 3 measurements, at most 3.0 % of an iteration could not be attributed to a layer or part; in the "
        "worst, 40.0 %."
    )
    again = [(place + "2", replace(run, workload=replace(run.workload, seed=1))) for place, run in found.runs]
    twice = Records(runs=[*found.runs, *again], measurements=[("b/measure", m), ("b2/measure", m)])
    assert "by +10.0 % for alexnet at batch size 8" in made(twice)["overhead"].sentences[0]
    elsewhere = replace(without, workload=replace(without.workload, precision="bfloat16"))
    other = Records(runs=[("a", elsewhere), ("b", with_clock)], measurements=[("b/measure", m)])
    assert "overhead" not in made(other)  # not the same training
    alone = Records(runs=[("b", with_clock)], measurements=[("b/measure", m)])
    assert "overhead" not in made(alone)


def test_every_layer_is_drawn_by_iteration_some_at_a_time():
    m = a_measurement(40)
    layers = tuple(replace(layer, parameters=place % 20) for place, layer in enumerate(m.layers))
    samples = tuple(LayerSample(n, layer.name, 0.1, 0.2, 0.0) for layer in layers for n in range(2))
    found = Records(measurements=[("m", replace(m, layers=layers, samples=samples))])
    figure = figures(found)["layers-by-iteration"]
    assert [view.name for view in figure.views[::2]] == [
        "alexnet, layers 1 to 16, forward", "alexnet, layers 17 to 32, forward", "alexnet, layers 33 to 38, forward",
    ]  # fmt: skip
    drawn = [name for view in figure.views[::2] for name in dict.fromkeys(view.table.values("layer"))]
    assert drawn == [layer.name for layer in layers if layer.parameters] and len(drawn) == 38


def test_iterations_against_threads():
    ms = [
        a_measurement(conditions={"threads": str(t)}, iteration_s=Spread(1 / t, 1 / t, 1 / t, 1 / t)) for t in (1, 2, 4)
    ]
    figure = figures(Records(measurements=[(str(place), m) for place, m in enumerate(ms)]))["by-threads"]
    assert figure.views[0].table.values("speedup") == [1.0, 2.0, 4.0]
    assert "fastest with 4 threads" in figure.says


def test_notes_and_tables_are_shown_as_they_are():
    table = ExtraTable("Some table", ("what", "how many"), (("a", "1"), ("b", "")))
    found = made(Records(notes=["First.", "Second."], tables=[table]))
    assert found["about"].points == ("First.", "Second.")
    assert rows(found["tables"], "extra-0") == [("a", "1"), ("b", None)]


def test_digits_of_a_given_table_are_kept_and_stand_on_the_right():
    given = ExtraTable("Digits", ("what", "exactly", "US$", "mixed"), (("t", "0.00014737", "27,156.53", "1"),) * 2)
    given = replace(given, rows=(*given.rows, ("u", "", "8", "x")))
    (listing,) = made(Records(tables=[given]))["tables"].blocks
    assert listing.table.rows[0] == ("t", "0.00014737", "27,156.53", "1")
    assert listing.table.numeric == [False, True, True, False]
    assert [value_of(cell) for cell in ("27,156.53", "x", "nan", 3, None)] == [27156.53, None, None, 3, None]


def test_a_run_beside_others_with_a_strategy_is_called_one_process():
    named = [run.group for run in run_results(records(a_run(), a_run(distribution=a_distribution("sync", 2))))]
    assert named == ["one process", "sync"] and find_strategy("sync").groups == 1
