"""Published studies: each can be made here, says what it is, and shows published numbers beside ours."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from paceline import record
from paceline.errors import InputError
from paceline.experiment.executing import execute
from paceline.experiment.experiment import Experiment
from paceline.experiment.reading import read_experiment
from paceline.measurement.links import LinkMeasurement, LinkSpeed
from paceline.reporting.page import page_of, report
from paceline.reproduction import dropout, study, threads
from paceline.reproduction.study import FOLDER, NAMES, Conclusions, find_study, known_studies
from paceline.results.comparison_rows import CostRow, ExtraTable, Finding, PublishedRow
from paceline.results.records import find_records
from paceline.results.table import ResultsTable
from tests.reporting.examples import a_measurement

SMALL = {"data": "digits:200", "epochs": 2, "threads": 1}


def tiny(name: str) -> Experiment:
    """A study with its settings, each as small as can be."""
    made = find_study(name).experiment(quick=True)
    changes: dict[str, dict[str, Any]] = {
        "elgato": {"network": ["mlp"], "batch": [10, 20, 50], "workers": [2]},
        "downpour": {"workers": [3, 7, 11]},
        "scaling": {},
        "layers": {},
        "threads": {"threads": [1, 2]},
        "transfer": {},
        "dropout": {"network": ["mlp", "dnn"]},
        "text": {"options.hidden": [8, 12, 16]},
    }
    grid = [{**block, **{k: v for k, v in changes[name].items() if k in block}} for block in made.grid]
    workload = {**made.workload, **SMALL}
    run = dict(made.run)
    if name == "elgato":
        grid = [{**block, "network": ["mlp"]} for block in grid[:2]]
    if name == "downpour":
        grid = [block for block in grid if block["driver"] == ["virtual"]]
    if name == "scaling":
        grid = [block for block in grid if "8x8" not in block.get("groups", []) and 64 not in block.get("workers", [])]
        workload["batch"] = 5
    if name == "layers":
        grid = [{"network": ["lenet5"], "batch": [5], "measure": [False, True]}]
    if name == "threads":
        workload |= {"options.hidden": [16], "data": "digits:200"}
    if name == "transfer":
        grid, run = grid[:1], {**run, "refresh": 0.004, "compute": 0.008}
    if name == "text":
        workload |= {"data": "text?first=60", "batch": 20, "epochs": 1}
    return replace(made, grid=tuple(grid), workload=workload, run=run, repetitions=1, notes=made.notes)


def executed(name: str, directory: Path) -> tuple[ResultsTable, Conclusions]:
    found = execute(tiny(name), out=directory)
    assert {row["status"] for row in found.rows} == {"finished"}, [row["error"] for row in found.rows]
    made = find_study(name).conclude(found, directory)
    made.write(directory / FOLDER)
    return found, made


@pytest.mark.parametrize("name", NAMES)
def test_every_study_can_be_planned_whole_and_quick(name, tmp_path):
    found = find_study(name)
    assert found.title and "\n" not in found.title and len(found.title) < 100
    whole, quick = found.experiment(quick=False), found.experiment(quick=True, cache=tmp_path)
    assert whole.name == quick.name == name and quick.is_quick and not whole.is_quick
    assert 0 < len(quick.runs()) <= len(whole.runs())
    assert len(quick.notes) > len(whole.notes) >= 2 and "quick version" in " ".join(quick.notes)
    assert all(note.endswith(".") for note in quick.notes)


def test_without_mnist_a_quick_study_makes_up_images_and_says_so(tmp_path, monkeypatch):
    for name in ("elgato", "downpour", "scaling", "dropout"):
        quick = find_study(name).experiment(quick=True, cache=tmp_path)
        assert quick.workload["data"].startswith("synthetic:1x28x28/10:")
        assert "synthetic images" in quick.notes[-1] and "paceline data fetch mnist" in quick.notes[-1]
        assert find_study(name).experiment(quick=False, cache=tmp_path).workload["data"].startswith("mnist:")
    monkeypatch.setattr("paceline.data.path", lambda name, cache=None: tmp_path)
    quick = find_study("elgato").experiment(quick=True)
    assert quick.workload["data"] == "mnist:6000" and "6,000 training images of MNIST" in quick.notes[-1]


def test_a_study_that_does_not_exist_is_named_with_its_nearest():
    with pytest.raises(InputError, match="no study 'elgatto': did you mean elgato"):
        find_study("elgatto")
    assert [found.name for found in known_studies()] == list(NAMES)


def test_what_stands_beside_is_found_again_by_a_report(tmp_path):
    made = Conclusions(
        findings=[Finding("It is so.", "published-lines")],
        published=[PublishedRow("a, 4 threads", 0.5, 0.25, "s", "x", along="threads", at=4.0, line="a", our_line="b")],
        costs=[CostRow("c", 2.0)],
        tables=[ExtraTable("Some table", ("what", "how many"), (("a", "1"), ("b", "2.5")))],
    )
    made.write(tmp_path)
    found = find_records([tmp_path])
    assert (found.findings, found.published, found.costs) == (made.findings, made.published, made.costs)
    assert found.tables == made.tables and not found.skipped
    page = page_of(found)
    assert page.answer.sentence == "It is so." and page.hero is not None and page.hero.id == "published-lines"
    (bad,) = [tmp_path / "bad.table.csv"]
    bad.write_text("a,b\n1\n")
    assert "should have 2 cells" in find_records([tmp_path]).skipped[0].reason


def published(made: Conclusions, unit: str) -> dict[str, float]:
    return {row.name: row.published for row in made.published if row.unit == unit}


@pytest.mark.slow
def test_elgato_has_the_model_as_printed_solved_exactly_and_ours(tmp_path):
    _, made = executed("elgato", tmp_path / "e")
    seconds = published(made, "s per pass")
    assert seconds["mlp, time at batch size 100, observed"] == 62.0
    assert seconds["lstm, time at batch size 2000, observed"] == 110.0
    assert seconds["mlp, time at batch size 500, predicted"] == 16.56
    assert seconds["mlp, time at batch size 500, solved exactly"] == pytest.approx(16.53, abs=0.005)
    assert seconds["mlp, time at batch size 1000, solved exactly"] == pytest.approx(10.84, abs=0.005)
    assert published(made, "ms") == pytest.approx({
        "mlp, t_g, per batch, as printed": 114.0, "mlp, t_g, per batch, solved exactly": 113.68,
        "lstm, t_g, per batch, as printed": 610.0,
    }, abs=0.01)  # fmt: skip
    shares = published(made, "% of the time")
    assert shares["mlp, communication at batch size 100, as printed"] == pytest.approx(92.7)
    assert shares["mlp, communication at batch size 100, solved exactly"] == pytest.approx(91.7, abs=0.05)
    assert shares["lstm, communication at batch size 2000, as printed"] == pytest.approx(13.9)
    assert published(made, "s per pass of communication") == pytest.approx({
        "mlp, communication at batch size 100, as printed": 57.5,
        "mlp, communication at batch size 2000, as printed": 2.85,
        "mlp, communication at batch size 100, solved exactly": 56.84,
        "mlp, communication at batch size 2000, solved exactly": 2.842,
        "lstm, communication at batch size 2000, as printed": 15.25,
    }, abs=0.005)  # fmt: skip
    operations = {row[0]: row[1] or row[2] for row in made.tables[0].rows}
    assert (operations["CPU:0, published"], operations["each GPU, published"]) == ("1855", "2373")
    assert any(place.endswith(", here") and int(many) > 20 for place, many in operations.items())
    ours = [row.ours for row in made.published if row.name.startswith("mlp")]
    # On a noisy machine the fit may fail; the page then shows a sentence instead of a number.
    unfitted = [one.sentence for one in made.findings if "do not fit the time model" in one.sentence]
    is_fitted = not any("mlp" in sentence for sentence in unfitted)
    assert all(value >= 0 if is_fitted else math.isnan(value) for value in ours), "fitted to two towers"
    figures = {figure.id: figure for figure in page_of(find_records([tmp_path / "e"])).figures}
    assert {
        "batch-model-times",
        *(["batch-model-shares"] if is_fitted else []),
        "learned-by-batch",
        "time-by-batch",
        "worker-accuracy",
    } <= figures.keys()
    names = set(figures["worker-accuracy"].views[0].table.values("line"))
    assert any("worker 0" in name for name in names) and any("worker 1" in name for name in names)


@pytest.mark.slow
def test_downpour_has_epochs_by_nodes_accuracy_and_costs(tmp_path):
    found, made = executed("downpour", tmp_path / "d")
    grown = {row.name: (row.published, row.ours) for row in made.published}
    assert grown["Downpour, 4 nodes"] == (100.0, 100.0) and grown["Downpour, 12 nodes"][0] == pytest.approx(
        100.85, abs=0.01
    )
    assert all(80 < ours < 120 for _, ours in grown.values())
    assert not any(row.unit.startswith("s") for row in made.published), "the step time is an input, no result"
    by_workers = [row for row in made.tables[0].rows if row[0] == "Downpour"]
    assert [row[2] for row in by_workers] == ["3", "7", "11"] and all(row[3:5] == ("1", "0") for row in by_workers)
    assert all(0 < float(row[5]) <= 100 for row in by_workers)
    assert [round(cost.amount, 2) for cost in made.costs[:2]] == [1272.17, 12244.24] and len(made.costs) == 6
    assert made.findings[1].sentence.startswith("From 4 to 12 nodes") and len(found.rows) == 9
    sections = {section.id for section in page_of(find_records([tmp_path / "d"])).sections}
    assert {"about", "published", "scaling", "costs", "tables"} <= sections


def test_what_diverges_is_counted_and_said():
    """With late gradients of many workers nothing may be left of a training."""
    rows = [
        {"strategy": "downpour", "driver": "virtual", "workers": n, "setting": str(n), "n": 2, "diverged": 0, **figures}
        for n, figures in (
            (3, {"test_accuracy_mean": 0.9, "test_accuracy_min": 0.88, "test_loss_mean": 0.3}),
            (32, {"test_accuracy_mean": math.nan, "n": 0, "diverged": 2}),
        )
    ]
    told = [{"setting": "3", "status": "finished", "test_loss": 0.3}, {"setting": "32", "status": "diverged"}]
    told += [{"setting": "32", "status": "diverged", "test_loss": None}]
    found = ResultsTable("downpour", "", tuple(told), (), tuple(rows), (), {}, 0)
    made = find_study("downpour").conclude(found, Path())
    assert made.tables[0].rows == (
        ("Downpour", "simulated", "3", "2", "0", "90", "88", "0.3", "", ""),
        ("Downpour", "simulated", "32", "2", "2", "", "", "", "", ""),
    )
    assert made.findings[0].sentence == "With 32 simulated workers, Downpour diverges."
    once = replace(found, rows=({**told[0], "test_loss": 0.3},), summary=tuple(rows[:1]))
    said = "With 3 simulated workers, test accuracy is 90.0 % with Downpour."
    assert find_study("downpour").conclude(once, Path()).findings[0].sentence == said
    worse = replace(once, rows=(*once.rows, {"setting": "3", "status": "finished", "test_loss": 61.5}))
    made = find_study("downpour").conclude(worse, Path())
    assert made.tables[0].rows[0][4] == "1" and made.findings[0].sentence.endswith("Downpour diverges.")
    synthetic = replace(once, rows=({**once.rows[0], "data": "synthetic:1x28x28/10:100"},))
    left = find_study("downpour").conclude(synthetic, Path()).findings
    assert not any("accuracy" in finding.sentence for finding in left), "accuracies on synthetic data mean nothing"


@pytest.mark.slow
def test_scaling_shows_what_doubling_saves(tmp_path):
    _, made = executed("scaling", tmp_path / "s")
    assert [row.published for row in made.published] == [35.0, 28.0, 10.0]
    assert all(0 < row.ours < 50 for row in made.published)
    figures = {figure.id: figure for figure in page_of(find_records([tmp_path / "s"])).figures}
    lines = set(figures["doubling"].views[0].table.values("runs"))
    assert {"sync", "downpour", "mixed", "Caffe, published"} <= lines
    assert "time-to-loss" in figures


@pytest.mark.slow
def test_layers_compares_training_with_and_without_measuring(tmp_path):
    _, made = executed("layers", tmp_path / "l")
    assert "lenet5 at batch size 5" in made.findings[3].sentence
    figures = {figure.id: figure for figure in page_of(find_records([tmp_path / "l"])).figures}
    assert {"with-and-without", "layers", "layers-by-iteration"} <= figures.keys()
    assert not list((tmp_path / "l").rglob("checkpoint.pt"))


def test_layers_puts_what_was_published_beside_what_was_measured_here(tmp_path, monkeypatch):
    """Each network and batch by its own measurements: the median overhead, the least and the greatest share missed."""
    monkeypatch.setattr("paceline.reproduction.layers.overhead_sentence", lambda *_: "needs runs, not made here")
    measured = [
        ("alexnet", 8, 0.01, 0.98), ("alexnet", 8, 0.02, 1.05), ("alexnet", 16, 0.06, 0.90), ("vgg11", 4, 0.5, 0.75),
    ]  # fmt: skip
    for number, (name, batch, overhead, accounted) in enumerate(measured):
        made = a_measurement(name=name, batch=batch, overhead=overhead, accounted=accounted)
        record.save(made, tmp_path / str(number) / "measurement.json")
    made = find_study("layers").conclude(ResultsTable("layers", "", (), (), (), (), {}, 0), tmp_path)
    assert {row.name: (row.published, pytest.approx(row.ours)) for row in made.published} == {
        "alexnet: overhead of measuring": (245.0, 2.0),
        "vgg11: overhead of measuring": (235.0, 50.0),
        "alexnet, the smaller batch: minimum unattributed": (44.0, 2.0),
        "alexnet, the smaller batch: maximum unattributed": (54.0, 5.0),
        "alexnet, the larger batch: minimum unattributed": (38.0, 10.0),
        "alexnet, the larger batch: maximum unattributed": (44.0, 10.0),
        "vgg11: minimum unattributed": (45.0, 25.0),
        "vgg11: maximum unattributed": (49.0, 25.0),
    }


@pytest.mark.slow
def test_threads_and_what_was_published_for_them(tmp_path):
    _, made = executed("threads", tmp_path / "t")
    assert len(made.published) == 11 and all(row.ours > 0 for row in made.published if row.at <= 2)
    caffe = [row.published for row in made.published if row.line == "Caffe"]
    assert caffe == pytest.approx([1.0, 1.324 / 0.790, 1.324 / 0.578, 1.324 / 15.444])  # speedups, not seconds
    assert made.tables[0].rows[0] == ("Caffe", "1.324", "0.79", "0.578", "15.44")
    figures = {figure.id: figure for figure in page_of(find_records([tmp_path / "t"])).figures}
    assert {"published-lines", "by-threads"} <= figures.keys()


@pytest.mark.slow
def test_transfer_arithmetic_is_what_devices_that_are_fed_take(tmp_path, monkeypatch):
    links = LinkMeasurement((LinkSpeed("disk to host", 1e-4, 2e9),), {})
    monkeypatch.setattr("paceline.reproduction.transfer.measure_links", lambda *_: links)
    _, made = executed("transfer", tmp_path / "b")
    arithmetic = {row.name: (row.published, row.ours) for row in made.published if "arithmetic" in row.name}
    assert len(arithmetic) == 5
    for theirs, ours in arithmetic.values():
        assert ours == pytest.approx(theirs, rel=1e-3)
    assert made.tables[0].rows[-1] == ("disk to host, here", "2", "4.000")
    assert "feeding-bus" in {figure.id for figure in page_of(find_records([tmp_path / "b"])).figures}


@pytest.mark.slow
def test_dropout_and_text_say_what_came_of_them(tmp_path):
    _, made = executed("dropout", tmp_path / "d")
    assert {finding.figure for finding in made.findings} == {"time-by-dropout", "learned-by-dropout"}
    _, made = executed("text", tmp_path / "t")
    (perplexity, writing) = made.tables
    assert all(len(finding.sentence.split()) <= 25 for finding in made.findings[:1])
    assert "perplexity" in made.findings[0].sentence and len(perplexity.rows) == 3
    assert all(text.startswith("The") and len(text) > 50 for _, text in writing.rows)
    written = report([tmp_path / "t"], tmp_path / "t" / "report.html")
    assert written.counts["runs"] == 3 and not written.skipped


def test_a_study_is_a_file_that_compare_takes_too():
    for name in NAMES:
        place = Path(study.__file__).with_name(f"{name}.toml")
        assert len(read_experiment(place).runs()) == len(find_study(name).experiment(quick=False).runs())


def test_differences_within_noise_are_not_stated():
    times = ((0.0, 1.0, 0.90), (0.0, 1.2, 0.92), (0.5, 1.1, 0.95), (0.5, 1.3, 0.96))
    rows = [
        {"network": "dnn", "status": "finished", "dropout": rate, "train_s": seconds, "test_accuracy": accuracy}
        for rate, seconds, accuracy in times
    ]
    said = [finding.sentence for finding in dropout.conclude(SimpleNamespace(rows=rows), Path()).findings]
    assert said[0] == "A dropout of 0.5 does not change the training time of dnn beyond noise."
    assert said[1] == "A dropout of 0.5 changes the test accuracy of dnn from 91.0 % to 95.5 %."

    def headline(two_threads: tuple[float, ...]) -> str:
        seconds = {1: (1.0, 1.3), 2: two_threads, 4: (1.3, 1.3), 8: (1.3, 1.3)}
        rows = [{"threads": t, "iteration_s": s, "status": "finished"} for t, some in seconds.items() for s in some]
        means = [{"threads": t, "iteration_s_mean": fmean(some), "n": len(some)} for t, some in seconds.items()]
        return threads.conclude(SimpleNamespace(rows=rows, summary=means), Path()).findings[0].sentence

    assert headline((0.5, 0.6)).startswith("A batch of 64 is fastest with 2 threads: 550 ms")
    assert headline((0.5,)) == "A batch of 64 takes from 500 ms with 2 threads to 1.3 s with 4 threads (one run each)."
    assert headline((0.8, 1.1)) == "More than one thread does not make a batch of 64 faster here."
