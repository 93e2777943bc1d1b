"""An experiment becomes runs: every combination once, with ids that depend on what a run is and on nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from paceline.errors import InputError
from paceline.experiment.experiment import Experiment
from paceline.experiment.planning import interleaved
from paceline.experiment.random_search import RandomSearch
from tests.experiment.studies import small, virtual


def settings_of(experiment: Experiment, *keys: str) -> list[tuple]:
    return [tuple(run.settings.get(key) for key in keys) for run in experiment.runs()]


def test_a_grid_is_every_combination_of_its_values():
    found = settings_of(small(grid=({"lr": [0.1, 0.2], "batch": [10, 20, 50]},)), "lr", "batch")
    assert found == [(lr, batch) for lr in (0.1, 0.2) for batch in (10, 20, 50)]


def test_several_grids_are_joined_and_what_they_share_is_one_run():
    grids = ({"lr": [0.1, 0.2]}, {"lr": [0.2], "batch": [50, 20]})
    assert settings_of(small(grid=grids), "lr", "batch") == [(0.1, 50), (0.2, 50), (0.2, 20)]


def test_without_a_grid_there_is_one_setting():
    (run,) = small(grid=()).runs()
    assert (run.label, run.repetition, run.workload.seed, run.name) == ("", 1, 0, run.id)


def test_repetitions_have_seeds_of_their_own_and_settings_share_them():
    runs = small(repetitions=3, workload={"data": "digits", "seed": 7}).runs()
    assert [run.workload.seed for run in runs] == [7, 8, 9] * 2
    assert len({run.id for run in runs}) == 6 and len({run.setting for run in runs}) == 2
    assert len({run.name for run in runs}) == 6


def test_an_id_is_the_same_in_another_process_and_beside_other_runs():
    program = (
        "from tests.experiment.studies import small\n"
        "print(small(grid=({'batch': [20], 'lr': [0.3, 0.02]},), workload={'data': 'digits'}).runs()[1].id)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    alone = small(workload={"batch": 20, "data": "digits"}, grid=({"lr": [0.02]},), name="other", title="x").runs()
    assert [run.id for run in alone] == [done.stdout.strip()]


def test_a_setting_is_told_by_what_distinguishes_it():
    labels = [run.label for run in virtual(repetitions=1).runs()]
    assert labels[0] == "sync · 1 worker"
    alone = replace(virtual(repetitions=1), grid=(*virtual().grid, {"strategy": ["none"]}))
    assert [run.label for run in alone.runs()] == [*labels, "one process"]


def test_what_does_not_apply_to_a_run_is_left_out_of_it():
    grid = ({"driver": ["local", "virtual"], "strategy": ["none", "sync"], "workers": [2, 3]},)
    runs = small(grid=grid, strategy={"compute-time": 2}).runs()
    assert [
        (r.settings.get("driver"), r.settings["strategy"], r.workers, "compute_time" in r.settings) for r in runs
    ] == [
        (None, "none", 1, False),
        ("local", "sync", 2, False),
        ("local", "sync", 3, False),
        ("virtual", "sync", 2, True),
        ("virtual", "sync", 3, True),
    ]


def test_kinds_of_runs_can_be_mixed():
    grids = (
        {"kind": "measure", "iterations": [40]},
        {"kind": "simulate", "strategy": ["sync"], "groups": [1]},
        {"lr": [1]},
    )
    assert [run.kind for run in small(grid=grids).runs()] == ["measure", "simulate", "train"]


def test_options_of_a_network_can_vary():
    nested = small(grid=({"options": {"hidden": [[8], [16, 8]]}},)).runs()
    flat = small(grid=({"options.hidden": [[8], [16, 8]]},)).runs()
    assert [run.workload.options for run in nested] == [{"hidden": [8]}, {"hidden": [16, 8]}]
    assert [run.id for run in nested] == [run.id for run in flat]


def test_both_spellings_of_a_key_are_one():
    dashes = small(grid=(), strategy={"strategy": "downpour", "fetch-every": 2})
    assert dashes.runs()[0].id == small(grid=(), strategy={"strategy": "downpour", "fetch_every": 2}).runs()[0].id


def test_a_network_brings_the_settings_with_which_it_trains_well():
    runs = small(workload={"data": "digits"}, grid=({"network": ["mlp", "lenet5"]},)).runs()
    assert [run.workload.optimizer for run in runs] == ["momentum", "adam"]


class TestOrder:
    def test_every_setting_comes_once_before_any_comes_again(self):
        runs = interleaved(virtual(repetitions=4).runs(), seed=3)
        rounds = [runs[i : i + 4] for i in range(0, 16, 4)]
        assert [{run.repetition for run in members} for members in rounds] == [{1}, {2}, {3}, {4}]
        assert len({tuple(run.setting for run in members) for members in rounds}) > 1

    def test_it_follows_from_the_seed(self):
        runs = virtual(repetitions=4).runs()
        assert interleaved(runs, 1) == interleaved(runs, 1)
        assert interleaved(runs, 1) != interleaved(runs, 2)
        assert Counter(run.id for run in interleaved(runs, 1)) == Counter(run.id for run in runs)


DRAWS = {
    "lr": {"log-uniform": [1e-4, 1e-1]},
    "l2": {"uniform": [0.0, 0.5]},
    "batch": {"choice": [10, 20, 50]},
    "options.hidden": {"integer": [3, 5]},
}


class TestRandom:
    def drawn(self, trials: int, seed: int = 0, **draws):
        experiment = small(grid=(), random=RandomSearch(trials, seed, draws or DRAWS))
        return [{key: run.settings[key] for key in draws or DRAWS} for run in experiment.runs()]

    def test_values_are_from_their_distributions(self):
        found = self.drawn(200)
        assert all(1e-4 <= s["lr"] <= 1e-1 and 0 <= s["l2"] <= 0.5 for s in found)
        assert {s["batch"] for s in found} == {10, 20, 50} and {s["options.hidden"] for s in found} == {3, 4, 5}
        below = sum(s["lr"] < 10**-2.5 for s in found)
        assert 70 < below < 130, "as many below the geometric middle as above it"

    def test_a_seed_repeats_them_and_more_trials_or_keys_leave_those_there_were(self):
        assert self.drawn(3) == self.drawn(5)[:3]
        assert self.drawn(3) != self.drawn(3, seed=1)
        assert [s["lr"] for s in self.drawn(3)] == [s["lr"] for s in self.drawn(3, lr=DRAWS["lr"])]

    def test_trials_are_made_at_every_point_of_a_grid_with_the_same_numbers(self):
        search = RandomSearch(2, 0, {"lr": {"uniform": [0.1, 0.2]}})
        runs = small(grid=({"batch": [10, 20]},), random=search).runs()
        assert [run.trial for run in runs] == [1, 2, 1, 2]
        assert [run.settings["lr"] for run in runs[:2]] == [run.settings["lr"] for run in runs[2:]]


class TestQuick:
    def test_it_replaces_base_grid_repetitions_and_trials(self):
        search = RandomSearch(9, 0, {"l2": {"uniform": [0.0, 0.1]}, "l1": {"uniform": [0.0, 0.1]}})
        experiment = small(
            repetitions=5,
            random=search,
            grid=({"lr": [0.1, 0.2], "batch": [10, 20]}, {"lr": [0.3]}),
            quick={"epochs": 3, "repetitions": 1, "trials": 2, "lr": 0.5, "batch": [10, 50], "l1": 0.25},
        )
        runs = experiment.quickly().runs()
        assert {run.repetition for run in runs} == {1} and {run.workload.epochs for run in runs} == {3}
        assert {run.settings["lr"] for run in runs} == {0.5} and {run.settings["l1"] for run in runs} == {0.25}
        assert {run.settings["batch"] for run in runs} == {10, 50}
        assert len({run.settings["l2"] for run in runs}) == 2
        assert experiment.quickly().quickly() == experiment.quickly()

    def test_it_may_have_a_grid_and_notes_of_its_own(self):
        experiment = small(
            notes=("Whole.",), quick={"grid": {"batch": [5]}, "notes": ["Quick."]}, grid={"lr": [0.1, 0.2]}
        )
        quick = experiment.quickly()
        assert [run.settings.get("batch") for run in quick.runs()] == [5]
        assert (experiment.notes, quick.notes) == (("Whole.",), ("Whole.", "Quick."))

    def test_there_must_be_something_quick(self):
        with pytest.raises(InputError, match=r"small has no section \[quick\]"):
            small().quickly()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grid": ({"worker": [1]},)}, "[grid] has no key 'worker': did you mean workers"),
        ({"grid": ({},)}, "[grid] is empty"),
        ({"grid": ({"batch": []},)}, "[grid] batch is an empty list"),
        ({"grid": ({"batch": [8, "x"]},)}, "[grid] batch='x' should be a whole number"),
        ({"grid": ({"batch": [{"a": 1}]},)}, "[grid] batch={'a': 1} should be a whole number from 1"),
        ({"grid": ({"seed": [1, 2]},)}, "repetitions = N"),
        ({"grid": ({"fetch_every": [1], "fetch-every": [2]},)}, "given twice"),
        ({"grid": ({"kind": ["trian"]},)}, "kind 'trian' is unknown: did you mean train?"),
        ({"grid": ({"strategy": ["downpuor"]},)}, "did you mean downpour"),
        ({"grid": ({"compute-time": ["gamma"]},)}, "gamma:SHAPE:SCALE"),
        ({"grid": ({"strategy": "sync", "overlap": ["yes"]},)}, "overlap='yes' should be true or false"),
        ({"workload": {"workers": 2}}, "[workload] workers belongs to [strategy]"),
        ({"workload": {"epochs": 1.5}}, "epochs=1.5 should be a whole number"),
        ({"workload": {"network": ["mlp"]}}, "network=['mlp'] should be text"),
        ({"strategy": {"workers": "four"}}, "workers='four' should be a whole number"),
        ({"run": {"iterations": 3}}, "iterations=3 should be a whole number from 20 to"),
        ({"repetitions": 0}, "repetitions=0"),
        ({"repetitions": True}, "repetitions=True"),
        ({"name": "-"}, "name='-'"),
        ({"timeout_s": 0}, "timeout=0"),
        ({"quick": {"epoch": 1}}, "[quick] has no key 'epoch': did you mean epochs"),
        ({"quick": {"repetitions": 0}}, "[quick] repetitions=0"),
        ({"quick": {"trials": 2}}, "[quick] trials needs a [random]"),
        ({"quick": {"notes": "one"}}, "[quick] notes='one' should be a list of sentences"),
        ({"quick": {"grid": {"batch": []}}}, "[grid] batch is an empty list"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_as_soon_as_the_experiment_is_made(changes, words):
    with pytest.raises(InputError) as raised:
        small(**changes)
    assert words in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workload": {"network": "mpl"}}, "no network 'mpl': did you mean mlp?"),
        ({"workload": {"data": "digts"}}, "did you mean digits"),
        ({"workload": {"options": {"hiden": 3}}}, "option 'hiden' is unknown to network 'mlp': did you mean hidden"),
        ({"strategy": {"push_every": 2}}, "push_every has no effect on any run: it needs workers or a strategy"),
        ({"strategy": {"strategy": "sync", "compute-time": "1"}}, 'compute_time has no effect on any run'),
        ({"strategy": {"strategy": "mixed"}, "grid": ({"workers": [2, 3]},)}, "3 workers: 2 groups do not divide 3"),
        ({"run": {"steps": 3}}, 'steps has no effect on any run: it is for kind = "simulate"'),
        ({"run": {"kind": "simulate"}}, 'kind = "simulate" needs a strategy'),
        ({"grid": ({"lr": [0.1] * 400, "batch": [8] * 400},)}, "160,000 runs are more than 100,000"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_combination_names_it(changes, words):
    with pytest.raises(InputError) as raised:
        small(**changes).runs()
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("draws", "words"),
    [
        ({}, "draws nothing"),
        ({"lr": 3}, "[random] lr=3 should be one of"),
        ({"lr": {"unform": [0, 1]}}, "'unform' is unknown: did you mean uniform"),
        ({"lr": {"uniform": [0.5]}}, "should be two numbers"),
        ({"lr": {"uniform": [0.5, 0.1]}}, "the least and the greatest"),
        ({"lr": {"log-uniform": [0.0, 0.1]}}, "should be above 0"),
        ({"batch": {"integer": [1, 2.5]}}, "should be two whole numbers"),
        ({"batch": {"uniform": [1, 8]}}, "batch=1.0 should be a whole number"),
        ({"bacth": {"choice": [1]}}, "did you mean batch"),
        ({"lr": {"choice": []}}, "should be a list"),
    ],
)
def test_a_mistake_in_a_random_search(draws, words):
    with pytest.raises(InputError) as raised:
        small(grid=(), random=RandomSearch(2, 0, draws))
    assert words in str(raised.value)


def test_a_key_is_drawn_or_in_a_grid_not_both():
    with pytest.raises(InputError, match="lr is in both"):
        small(random=RandomSearch(2, 0, {"lr": {"choice": [0.1]}}))


def test_workers_without_a_strategy_are_synchronous_ones():
    from paceline.experiment.keys import setup_of

    runs = small(strategy={"workers": 2, "driver": "virtual", "validate-every": "5updates"}).runs()
    setup = setup_of(runs[0].settings)
    assert setup.strategy is not None and (setup.strategy.name, setup.workers) == ("sync", 2)
    assert runs[0].settings["validate_every"] == "5updates"
