"""A section is there when there is something to show, and says what follows from the records."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from paceline.reporting.answer import answer_of, first_to_target_sentence, run_sentence, title_of
from paceline.reporting.figure import Column, Figure, Section, TableBlock, table
from paceline.reporting.sections import sections_of
from paceline.reporting.sections.comparisons import (
    costs,
    coverage_sentence,
    prediction_sentence,
    predictions,
    published,
)
from paceline.reporting.sections.layers import time_parts, where_the_time_goes
from paceline.reporting.sections.timeline import drawn_spans, row_order
from paceline.reporting.sections.workers import staleness
from paceline.results.comparison_rows import CostRow, PredictionRow, PublishedRow
from paceline.results.records import Records, Skipped
from paceline.results.run_result import run_results
from paceline.strategy.ledger import LedgerSummary
from paceline.trace import Span, Trace
from paceline.training.division import Division, ProcessRecord
from paceline.training.run import Conditions, Run
from tests.a_run import a_run
from tests.reporting.examples import a_distribution, a_measurement, a_simulation, a_trace, a_virtual_run, an_outcome


def made(records: Records) -> dict[str, Section]:
    return {section.id: section for section in sections_of(records, run_results(records))}


def figures(records: Records) -> dict[str, Figure]:
    return {b.id: b for section in made(records).values() for b in section.blocks if isinstance(b, Figure)}


def rows(section: Section, name: str) -> list[tuple]:
    (listing,) = [b for b in section.blocks if isinstance(b, TableBlock) and b.id == name]
    return list(listing.table.rows)


ONE = Records(runs=[("runs/one", a_run())])
MANY = Records(runs=[(f"r{w}", a_virtual_run("downpour", w)) for w in (2, 4)])


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (ONE, ["time", "learning", "what", "conditions"]),
        (MANY, ["learning", "scaling", "workers", "timeline", "what", "runs", "conditions"]),
        (Records(measurements=[("m", a_measurement())]), ["time", "timeline", "what", "conditions"]),
        (Records(simulations=[("s", a_simulation())]), ["workers", "timeline", "what"]),
        (Records(predictions=[PredictionRow("a", 1.0)]), ["predictions"]),
        (Records(published=[PublishedRow("a", 1.0)]), ["published"]),
        (Records(costs=[CostRow("a", 1.0)]), ["costs"]),
        (replace(ONE, price=2.0), ["time", "learning", "costs", "what", "conditions"]),
        (replace(ONE, skipped=[Skipped("a", "b")]), ["time", "learning", "what", "conditions", "skipped"]),
        (Records(outcomes=[("c", an_outcome("a", "b"))]), ["what"]),
    ],
)
def test_sections_without_data_are_not_there(records, expected):
    assert list(made(records)) == expected


def test_times_add_up_to_the_wall_clock_and_the_rest_is_shown():
    assert time_parts(a_run().trace) == {
        "preparing": 0.5,
        "writing checkpoints": 0.5,
        "training": 1.75,  # two seconds, less the checkpoint written meanwhile
        "validating": 1.0,
        "unattributed": 0.25,
    }
    assert time_parts(Trace()) == {} and time_parts(a_trace()) == {}, "workers' time is not this process's"


def test_a_resumed_run_says_which_time_is_shown():
    note = figures(Records(runs=[("a", a_run(resumed=2))]))["wall-clock"].note
    assert "since it was last resumed" in note and figures(ONE)["wall-clock"].note == ""


def test_layers_and_parts_of_a_measurement():
    found = figures(Records(measurements=[("m", a_measurement(layers=3))]))
    (view,) = found["layers"].views
    assert view.table.values("layer") == ["conv1", "conv2", "conv3"]
    assert view.table.values("backward") == pytest.approx([2e-4, 4e-4, 6e-4])
    assert sum(view.table.values("share")) == pytest.approx(100)
    (row,) = found["parts"].views[0].table.rows
    assert sum(row[1:-1]) == pytest.approx(row[-1]), "the parts are the iteration"
    assert found["parts"].views[0].options["parts"] == ["load", "forward", "backward", "update", "loop"]


def test_what_is_unattributed_is_shown_also_where_it_is_negative():
    m = a_measurement(layers=3)
    parts = {**m.parts_s, "unattributed": -0.1 * m.iteration_s.mean_s}
    found = figures(Records(measurements=[("m", replace(m, parts_s=parts, warnings=("few samples",)))]))
    assert found["parts"].views[0].options["parts"][-1] == "unattributed"
    section = where_the_time_goes([("m", replace(m, warnings=("few samples",)))], [])
    assert "Warning: few samples." in section.sentences


def test_a_step_that_runs_as_one_shows_the_layers_of_the_plain_one_apart():
    m = a_measurement(layers=2)
    found = figures(Records(measurements=[("m", replace(m, layers=m.layers[:1], eager_layers=m.layers))]))
    assert [view.name for view in found["layers"].views] == ["alexnet", "alexnet, eager step"]


def test_curves_of_one_run_over_epochs_time_and_updates():
    both = figures(ONE)
    found = both["accuracy"]
    assert [view.name for view in found.views] == ["epochs", "time", "updates"]
    data = found.views[0].table
    assert data.values("accuracy") == [12.5, 75.0, 25.0, 81.25] and data.values("time") == [2.5, 4.0] * 2
    assert both["loss"].views[0].table is data, "a table that two figures share is one"


def test_a_run_without_labels_has_losses_alone():
    epochs = tuple(replace(e, train_accuracy=math.nan, test_accuracy=math.nan) for e in a_run().epochs)
    records = Records(runs=[("a", a_run(epochs=epochs, test_accuracy=math.nan))])
    assert "accuracy" not in figures(records) and "loss" in figures(records)
    assert answer_of(records, run_results(records)).sentence == (
        "lenet5 reached a test loss of 0.6250 in 2 epochs and 4.5 s."
    )


def test_measured_and_simulated_time_are_not_drawn_together():
    found = figures(Records(runs=[("a", a_run()), ("b", a_virtual_run())]))
    names = [view.name for view in found["accuracy-time"].views]
    assert names[:2] == ["test accuracy, measured time", "test accuracy, simulated time"]
    assert found["accuracy-updates"].views[0].name == "test accuracy"


def test_staleness_is_shared_out_and_wide_ranges_are_put_together():
    def of(counts):
        d = a_distribution(ledger=LedgerSummary(staleness=counts))
        return staleness(run_results(Records(runs=[("a", replace(a_virtual_run(), distribution=d))])))

    assert of({"0": 5}) is None and of({}) is None
    assert of({"0": 1, "2": 3}).views[0].table.values("share") == [25, 0, 75]
    wide = of({"0": 1, "999": 1})
    assert len(wide.views[0].table.rows) == 50 and wide.views[0].table.values("staleness")[-1] == "980–999"
    assert sum(wide.views[0].table.values("share")) == pytest.approx(100)


def test_workers_and_faults_are_told():
    section = made(MANY)["workers"]
    assert "2 faults occurred; training continued after each of them." in section.sentences
    assert rows(section, "faults")[0] == ("2 workers", 1.25, "died", "worker 0", "was ended by SIGKILL")
    assert rows(section, "batches")[0][:5] == ("2 workers", 90, 0, 0, 1)


def test_strategies_are_compared_by_the_time_to_an_accuracy():
    runs = [("a", a_run()), ("b", a_run(distribution=a_distribution("sync", 2, driver="local")))]
    later = tuple(replace(epoch, wall_s=2 * epoch.wall_s) for epoch in a_run().epochs)
    said = answer_of(Records(runs=runs), run_results(Records(runs=runs))).sentence
    assert "81 % test accuracy" in said and said.endswith("(one run each).")
    slow = [("a", a_run()), ("b", a_run(distribution=a_distribution("sync", 2, driver="local"), epochs=later))]
    said = first_to_target_sentence({run.group: [run] for run in run_results(Records(runs=slow))})
    assert said.startswith("One process is the first to reach 81 % test accuracy, after ")


def test_a_trace_of_few_spans_is_drawn_as_it_is():
    trace = a_trace(2, 5)
    assert drawn_spans(trace) == list(trace.spans)


def test_of_too_many_spans_the_first_of_all_rows_are_drawn():
    spans = [Span(f"worker {w}", "compute", step, step + 0.9) for w in range(4) for step in range(500)]
    found = drawn_spans(Trace(tuple(spans)), most=400)
    assert len(found) == 400 and {span.who for span in found} == {f"worker {w}" for w in range(4)}
    assert max(span.start_s for span in found) == 99


def test_rows_of_a_timeline_are_in_a_natural_order():
    names = ["worker 10", "worker 2", "server shard 1", "server", "main", "worker 0", "cuda"]
    expected = ["main", "server", "server shard 1", "cuda", "worker 0", "worker 2", "worker 10"]
    assert sorted(names, key=row_order) == expected


def test_the_timeline_of_a_simulated_run_has_no_row_in_real_time():
    trace = Trace((Span("main", "load", 0.0, 0.1), *a_trace().spans))
    records = Records(runs=[("r", a_virtual_run(trace=trace))])
    rows = figures(records)["timeline"].views[0].table.values("who")
    assert "worker 0" in rows and "main" not in rows


def test_spans_that_are_no_spans_are_left_out():
    trace = Trace((Span("a", "x", 0.0, 1.0), Span("a", "x", math.nan, 1.0), Span("a", "x", 2.0, 1.0)))
    assert len(drawn_spans(trace)) == 1


def test_predictions_stand_beside_what_came():
    given = [
        PredictionRow("a", 11.0, 9.0, 12.0, 10.0),
        PredictionRow("b", 9.0, 8.0, 9.5, 10.0),
        PredictionRow("c", 1.0),
    ]
    assert prediction_sentence(given) == (
        "Half of 2 predictions are within 10.0 % of the measurement; the worst is off by 10.0 %."
    )
    covered = "The median error of 2 predictions is 10.0 %; 1 of 2 intervals cover the measured value."
    assert coverage_sentence(given) == covered
    too_high = "The predicted a is 10.0 % too high: 11.0 s predicted, 10.0 s measured."
    assert prediction_sentence(given[:1]) == too_high
    assert prediction_sentence(given[1:2]).startswith("The predicted b is 10.0 % too low: ")
    section = predictions(given)
    assert section.title == "Predictions and measurements"
    assert rows(section, "prediction-rows")[0] == ("a", 11.0, 9.0, 12.0, 10.0, pytest.approx(10.0), "yes")
    assert rows(section, "prediction-rows")[2][-1] is None
    assert predictions([PredictionRow("c", 1.0)]).title == "Predictions"


def test_units_are_not_drawn_together():
    given = [PublishedRow("a", 1.0, 2.0, "s"), PublishedRow("b", 90.0, 95.0, "%"), PublishedRow("c", 1.0, 1.5, "s")]
    section = published(given)
    (figure,) = [block for block in section.blocks if isinstance(block, Figure)]
    assert [(view.name, len(view.table.rows)) for view in figure.views] == [("s", 2), ("%", 1)]
    said = "3 published numbers have a counterpart here; they are compared one by one below."
    assert section.sentences == (said,)
    assert published(given[::2]).sentences == ("Our values are 1.5 to 2 times the 2 published ones.",)


def test_a_price_makes_every_run_cost_something():
    runs = run_results(Records(runs=[("a", a_run(wall_s=1800.0)), ("b", a_virtual_run("sync", 2))]))
    section = costs([], runs, 4.0)
    (figure,) = section.blocks
    by_name = dict(zip(figure.views[0].table.values("what"), figure.views[0].table.values("cost"), strict=True))
    assert by_name["lenet5"] == pytest.approx(2.0), "half an hour of one machine"
    assert by_name["dnn"] == pytest.approx(4.0 / 3600 * 2 * 33.0), "33 simulated seconds of two"
    assert costs([], runs, None) is None


def test_conditions_have_every_value_that_there_was():
    other = Conditions("cuda:0", "A GPU", 2, 4, "float32", "3.11.0", "2.12.0", "0.1.0", "Linux x86_64")
    records = Records(
        runs=[("a", a_run()), ("b", a_run(conditions=other)), ("c", a_run())], measurements=[("m", a_measurement())]
    )
    (listing,) = [b for b in made(records)["conditions"].blocks if b.id == "conditions-table"]
    assert [column.name for column in listing.table.columns] == ["condition", "value"]
    assert ("device name", "A GPU and A Processor") in listing.table.rows


def test_what_was_run_is_said_in_words():
    assert made(MANY)["what"].sentences == (
        "2 runs of dnn on digits, trained on a simulated cluster with downpour and 2 and 4 workers; 3 epochs at batch "
        "size 32 with sgd.",
    )
    broken = Records(runs=[("a", a_run()), ("b", a_run(status="diverged"))])
    assert "Of 2 runs, 1 diverged; it is left out of rankings." in made(broken)["what"].sentences


HALVES = Division(1, 2, 8, "1f1b", ("conv1", "fc1"), "measured", tuple(ProcessRecord(0, n, ("a",), 9) for n in (0, 1)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "lenet5 reached 81.2 % test accuracy in 2 epochs and 4.5 s."),
        ({"wall_s": 600.0}, "in 2 epochs and 10.0 min."),
        ({"epochs": a_run().epochs[:1]}, "in 1 epoch and "),
        ({"status": "diverged"}, "lenet5 diverged after 46 updates and 4.5 s."),
        ({"status": "interrupted"}, "lenet5 was interrupted after 46 updates and 4.5 s."),
        ({"status": "running", "updates": 0}, "was still running after 0 updates and"),
        ({"distribution": a_distribution()}, "of simulated time with 2 simulated workers (downpour)."),
        ({"distribution": a_distribution(driver="local")}, "4.5 s with 2 workers (downpour)."),
        ({"division": HALVES}, "in 2 epochs and 4.5 s, divided among 2 processes."),
    ],
)  # fmt: skip
def test_the_answer_of_one_run_is_one_sentence(changes, expected):
    assert expected in run_sentence(a_run(**changes))


@pytest.mark.parametrize(
    ("records", "expected", "picture"),
    [
        (replace(MANY, predictions=[PredictionRow("a", 11.0, measured=10.0)]), "The predicted a is 10.0 % too high",
         "predictions"),
        (MANY, "downpour with 4 workers is the first to reach 88 % test accuracy, after 19.5 s of simulated time "
         "(one run each).", "time-to-accuracy"),
        (Records(simulations=[("a", a_simulation(2)), ("b", a_simulation(4))]),
         "In simulation, sync trains 1.69 times as fast with 4 workers as with 2 (one run each); the efficiency is "
         "85 %.",
         "throughput"),
        (Records(runs=[("a", a_run()), ("b", a_run(workload=replace(a_run().workload, seed=1), test_accuracy=0.9))]),
         "2 runs of lenet5 on digits ended between 81.2 % and 90.0 % test accuracy.", "accuracy-time"),
        (Records(measurements=[("m", a_measurement(3))]),
         "An iteration of alexnet at batch size 8 takes 1.84 ms: 65 % backward pass; the slowest layer, "
         "conv3, takes 49 %.", "layers"),
        (Records(simulations=[("s", a_simulation(50))]),
         "50 simulated workers with sync: 12.71 steps/s, 15 % of the time waiting.", "timeline"),
        (Records(published=[PublishedRow("epoch", 3.5, 3.6, "s")]), "epoch: 3.6 s here, 3.5 s published.",
         "published"),
        (Records(predictions=[PredictionRow("slow", 9.0), PredictionRow("fast", 2.0)]),
         "fast is predicted at 2.0 s; nothing has been measured yet.", "predictions"),
    ],
)  # fmt: skip
def test_the_answer_is_what_matters_most_with_its_picture(records, expected, picture):
    found = answer_of(records, run_results(records))
    assert expected in found.sentence and len(found.sentence.split()) <= 25
    assert next(name for name in found.pictures if name in figures(records)) == picture


def test_other_findings_are_said_below():
    records = replace(ONE, measurements=[("m", a_measurement())], published=[PublishedRow("a", 1.0, 2.0)])
    more = answer_of(records, run_results(records)).summary
    assert "trains 1.69 times" in answer_of(MANY, run_results(MANY)).summary[0], "speed alone comes second"
    assert more[0].startswith("Training on digits on A Processor ran at 1,705 samples/s")
    assert more[1].startswith("An iteration of alexnet") and more[2].startswith("a: 2.000 here")


def test_shares_of_an_iteration_whose_parts_are_too_long_are_those_of_its_parts():
    m = a_measurement(3)
    too_long = replace(m, parts_s={**m.parts_s, "backward": 2 * m.iteration_s.mean_s, "unattributed": -1.0})
    said = answer_of(records := Records(measurements=[("m", too_long)]), run_results(records)).sentence
    share = 100 * too_long.parts_s["backward"] / sum(s for s in too_long.parts_s.values() if s > 0)
    assert share < 100 and f"{share:.0f} % backward pass" in said


def test_no_shares_are_stated_where_the_parts_do_not_add_up():
    records = Records(measurements=[("m", replace(a_measurement(3), accounted=1.257))])
    said = answer_of(records, run_results(records)).sentence
    assert said.endswith("takes 1.84 ms, but its measured parts add up to 126 %: measure again.")
    assert len(said.split()) <= 25 and "slowest" not in said


def test_times_that_belong_together_have_one_unit():
    seconds = [Column(name, "s") for name in ("predicted", "low", "high", "server")]
    given = table(("what", *seconds), [("a", 0.5, 0.1, 1.7, 40.0), ("b", 1e-5, 1e-6, 1e-4, 1.0)])
    assert [title for _, title in given.scales] == ["what", "predicted, ms", "low, ms", "high, ms", "server, s"]
    assert [factor for factor, _ in given.scales] == [1, 1e3, 1e3, 1e3, 1]


def test_a_top_n_accuracy_of_few_classes_is_not_shown():
    def shown(classes):
        records = Records(runs=[("a", a_run(classes=classes))])
        tiles = [what for _, what in answer_of(records, run_results(records)).tiles]
        (epochs,) = [block for block in made(records)["learning"].blocks if isinstance(block, TableBlock)]
        return [what for what in tiles if "top-" in what], [c.name for c in epochs.table.columns if "top-5" in c.name]

    assert shown(10) == (["test top-5 accuracy"], ["training top-5", "test top-5"])
    assert shown(5) == ([], []), "every answer is among five of five"


def test_the_title_is_what_it_is_about():
    assert title_of(ONE, run_results(ONE)) == "lenet5 on digits"
    assert title_of(replace(ONE, title="A study"), ()) == "A study"
    assert title_of(Records(links=[]), ()) == "Report"


def test_a_lead_within_noise_is_no_lead():
    def runs(*accuracies):
        return [
            (f"{lr}-{seed}", a_run(workload=replace(a_run().workload, lr=lr, seed=seed), test_accuracy=accuracy))
            for lr, found in zip((0.1, 0.2), accuracies, strict=True)
            for seed, accuracy in enumerate(found)
        ]

    def said(*accuracies):
        return answer_of(records := Records(runs=runs(*accuracies)), run_results(records)).sentence

    assert said((0.80, 0.90), (0.85, 0.95)) == "2 of 2 settings are equally accurate within noise, at about 90.0 %."
    assert said((0.80, 0.81), (0.90, 0.91)) == "The most accurate of 2 settings is lr 0.2: 90.5 % test accuracy."
    unlucky = "Test accuracy ranges from 50.0 % with lr 0.1 to 90.0 % with lr 0.2 (too few runs to judge the noise)."
    assert said((0.80, 0.20), (0.90,)) == unlucky, "a repetition that did not learn counts"
    ends = "80.0 % with lr 0.1 to 90.0 % with lr 0.2"
    assert said((0.80,), (0.90,)) == f"Test accuracy ranges from {ends} (one run each).", "its noise is not known"
    assert said((0.80,), (0.80,)) == "All 2 settings reach the same test accuracy: 80.0 % (one run each)."


def test_runs_that_diverged_or_did_not_learn_are_not_ranked():
    fast = replace(a_virtual_run("sync", 4), test_accuracy=0.1)
    records = Records(
        runs=[("a", a_virtual_run("sync", 2)), ("b", fast), ("c", a_virtual_run("sync", 8, status="diverged"))]
    )
    found = answer_of(records, run_results(records))
    assert found.sentence == "In simulation, no run of sync with more than 2 workers learned enough to be ranked."
    assert "Of 3 runs, 1 diverged and 1 ended below half of the best test accuracy" in " ".join(found.summary)
    assert ("best test accuracy", "89.0 %") in [(what, value) for value, what in found.tiles]


def several(strategy: str, workers: int, seconds: tuple[float, ...]) -> list[tuple[str, Run]]:
    """One repetition for each of these numbers of simulated seconds."""
    runs = [a_virtual_run(strategy, workers, seed) for seed in range(len(seconds))]
    took = [replace(r, distribution=replace(r.distribution, seconds=s)) for r, s in zip(runs, seconds, strict=True)]
    return [(f"{strategy}{workers}-{seed}", run) for seed, run in enumerate(took)]


def test_a_speedup_within_noise_is_none():
    noisy = Records(runs=[*several("downpour", 2, (33.0, 60.0)), *several("downpour", 4, (20.0, 40.0))])
    said = "In simulation, downpour is as fast with 4 workers as with 2, within noise."
    assert said in made(noisy)["scaling"].sentences
    clear = Records(runs=[*several("downpour", 2, (33.0, 34.0)), *several("downpour", 4, (20.0, 21.0))])
    assert "times as fast with 4 workers as with 2" in made(clear)["scaling"].sentences[0]


def test_the_first_to_an_accuracy_is_sought_among_all_runs_not_only_those_with_several_numbers_of_workers():
    slow = [(f"r{w}", a_virtual_run("downpour", w)) for w in (2, 4)]
    early = tuple(replace(point, seconds=0.01 * point.epoch) for point in slow[0][1].points)
    fast = ("fast", replace(a_virtual_run("sync", 8), points=early))
    answer = answer_of(records := Records(runs=[*slow, fast]), run_results(records))
    assert (
        answer.sentence.startswith("sync · 8 workers is the first to reach") and answer.pictures[0] == "accuracy-time"
    )


def test_a_warning_of_repetitions_is_said_once():
    warned = [(f"r{seed}", replace(a_virtual_run(seed=seed), warnings=("it learns nothing",))) for seed in range(3)]
    records = Records(runs=[*warned, ("other", a_virtual_run("sync"))])
    said = [sentence for sentence in made(records)["what"].sentences if "Warning" in sentence]
    assert said == ["Warning: downpour: it learns nothing (the first of 3 runs)."]


def test_runs_of_one_epoch_have_no_curves():
    assert "learning" not in made(Records(runs=[(f"r{w}", a_virtual_run(workers=w, epochs=1)) for w in (2, 4)]))


def test_accuracy_on_made_up_data_is_no_result():
    for data, told in (("digits", True), ("synthetic:64/10", False)):
        runs = [(f"r{w}", a_virtual_run(workers=w)) for w in (2, 4)]
        records = Records(runs=[(p, replace(r, workload=replace(r.workload, data=data))) for p, r in runs])
        tiles = answer_of(records, run_results(records)).tiles
        assert ("best test accuracy" in [what for _, what in tiles]) == told


def test_the_overhead_of_a_short_measurement_is_put_into_perspective():
    short = replace(a_measurement(), overhead=17.8, overhead_s=0.22, overhead_hour=0.01)
    records = Records(measurements=[("m", short)])
    tiles = {what: value for value, what in answer_of(records, ()).tiles}
    assert tiles["overhead of measuring, in a run of an hour"] == "+1.0 %"
    said = made(records)["what"].sentences[0]
    assert "Measuring added 220 ms (+1780.0 %) to this run, and would add +1.0 % to a run of an hour." in said
