"""A plan: its reasons follow from its numbers, and it can be saved."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import numpy as np
import pytest

from paceline import record
from paceline.cluster import Cluster, Link, MachineCount, find_machine
from paceline.errors import InputError, PacelineError
from paceline.planning.machine_options import options_of
from paceline.planning.objective import Objective
from paceline.planning.planning import make_plan
from paceline.planning.reasons import range_words, time_words
from paceline.workload import resolve
from tests.planning.invented import WORKLOAD, InventedPredictions, invented_cluster, invented_predictions

IMAGES = InventedPredictions(samples=1_281_167, parameter_bytes=100_000_000, flops=12e9)


def slow_network(bandwidth: float = 1.25e8, count: int = 9) -> Cluster:
    """Machines of one GPU each."""
    machine = replace(find_machine("g5.xlarge"), network=Link("wire", 5e-5, bandwidth))
    return Cluster("lab", (MachineCount(machine, count),))


def test_a_plan_survives_saving_and_loading(tmp_path):
    plan = make_plan(WORKLOAD, options_of(invented_cluster(2)), Objective(epochs=3), predict=invented_predictions(2))
    record.save(plan, tmp_path / "plan.json")
    again = record.load(tmp_path / "plan.json")
    assert repr(again) == repr(plan), "NaN is not itself"
    assert record.dump(again) == record.dump(plan)
    assert record.dump(plan)["kind"] == "plan"


def test_the_table_has_the_pick_even_if_it_is_not_on_the_front():
    plan = make_plan(WORKLOAD, options_of(invented_cluster(2)), Objective(epochs=3), predict=invented_predictions(2))
    off_front = next(one for one in plan.simulated if one not in plan.front)
    for pick, rows in ((plan.front[0], len(plan.front)), (off_front, len(plan.front) + 1)):
        table = replace(plan, pick=pick).table()
        assert [row["time_s"] for row in table if row["picked"]] == [pick.time_s] and len(table) == rows
        assert [row["time_s"] for row in table] == sorted(row["time_s"] for row in table)


def test_no_simulated_alternative_beats_the_front():
    plan = make_plan(WORKLOAD, options_of(invented_cluster(2)), Objective(epochs=3), predict=invented_predictions(2))
    assert len(plan.front) > 3 and set(plan.front) <= set(plan.simulated)
    for one in plan.front:
        for other in plan.simulated:
            better = other.time_s < 0.98 * one.time_s and other.money < 0.98 * one.money
            assert not (better and other.in_flight <= one.in_flight), (one.candidate, other.candidate)
    times = [one.time_s for one in plan.front]
    assert times == sorted(times)


def test_money_is_what_the_machines_cost_for_the_time():
    plan = make_plan(WORKLOAD, options_of(invented_cluster(4)), Objective(epochs=3), predict=invented_predictions(4))
    prices = {m.machine.name: m.machine.price_per_hour for m in invented_cluster(4).machines}
    for one in plan.simulated:
        price = prices[one.candidate.machine]
        assert one.money == pytest.approx(one.machines * price * one.time_s / 3600)
        assert one.time_s == pytest.approx(3 * one.epoch_s)
        assert one.low_s <= one.time_s <= one.high_s


def test_a_server_s_own_machine_is_paid_for():
    plan = make_plan(
        WORKLOAD, options_of(slow_network(1e12)), Objective(epochs=1), predict=IMAGES, strategies=("downpour",)
    )
    one = next(one for one in plan.simulated if one.candidate.workers > 1)
    assert one.machines == one.candidate.machines + 1


def test_a_deadline_gives_the_cheapest_in_time_and_says_so():
    plan = make_plan(WORKLOAD, "catalogue", Objective(epochs=90, deadline_s=3600), predict=IMAGES)
    assert plan.met and plan.pick.time_s <= 3600
    assert plan.reasons[0].startswith("the cheapest within 60 min: ")
    assert f"{plan.pick.money:,.2f} USD" in plan.reasons[0]
    cheaper = [o for o in plan.simulated if o.money < 0.99 * plan.pick.money and o.in_flight <= 8]
    assert all(one.time_s > 3600 for one in cheaper)


def test_a_deadline_that_cannot_be_met_gives_the_fastest():
    plan = make_plan(WORKLOAD, options_of(slow_network()), Objective(epochs=90, deadline_s=10), predict=IMAGES)
    assert not plan.met
    assert re.match(r"no plan is within 10 s: the fastest takes .* and .* USD", plan.reasons[0])
    assert plan.pick.time_s <= 1.01 * min(one.time_s for one in plan.simulated)


def test_a_late_pick_far_from_the_workload_is_compared_with_a_closer_one():
    plan = make_plan(WORKLOAD, options_of(slow_network()), Objective(epochs=90, deadline_s=10), predict=IMAGES)
    assert plan.pick.in_flight > 16 and not plan.met
    assert "whether it converges as well is not known" in plan.reasons[1]
    near = min((one for one in plan.simulated if one.candidate.is_close_to(64)), key=lambda one: one.time_s)
    assert f"the best with fewer, {near}, takes " in plan.reasons[1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.00637, "6.37 ms"), (1.5, "1.5 s"), (600, "10 min"), (7200, "2 h"), (400_000, "4.63 days"), (4e9, "127 years")],
)
def test_times_in_words(seconds, words):
    assert time_words(seconds) == words


def test_both_ends_of_a_range_have_one_unit():
    assert range_words(170_280, 362_880) == "1.97 to 4.2 days"
    assert range_words(0.2, 45.0) == "0.2 to 45 s"


def test_a_budget_that_cannot_be_met_gives_the_cheapest():
    plan = make_plan(WORKLOAD, options_of(slow_network()), Objective(epochs=90, budget=0.01), predict=IMAGES)
    assert not plan.met and plan.reasons[0].startswith("no plan is within 0.01 USD: the cheapest takes ")
    assert plan.pick.money <= 1.01 * min(one.money for one in plan.simulated)


def test_the_best_balance_says_how_it_was_chosen():
    plan = make_plan(WORKLOAD, options_of(invented_cluster(2)), Objective(epochs=3), predict=invented_predictions(2))
    assert plan.reasons[0].startswith("the best balance, with the smallest time × cost: ")


def test_a_slow_network_makes_it_network_bound_in_words_and_numbers():
    plan = make_plan(
        WORKLOAD,
        options_of(slow_network()),
        Objective(epochs=1, deadline_s=14_000),
        predict=IMAGES,
        strategies=("downpour",),
    )
    several = [one for one in plan.simulated if one.candidate.workers > 1]
    assert all(one.bound == "network" for one in several)
    (line,) = [line for line in plan.reasons if " of each step " in line]
    one = next(one for one in several if str(one) in line or one == plan.pick)
    for share in (one.waiting_share, one.communication_share):
        assert share < 0.005 or f"{100 * share:.0f} %" in line


def test_compared_alternatives_were_simulated():
    plan = make_plan(WORKLOAD, "catalogue", Objective(epochs=90, deadline_s=86400), predict=IMAGES)
    names = [str(one) for one in plan.simulated]
    compared = [line for line in plan.reasons if line.startswith("the best ")]
    assert len(compared) >= 3
    for line in compared:
        assert any(name in line for name in names), line


def test_more_longer_and_less_are_right():
    plan = make_plan(WORKLOAD, "catalogue", Objective(epochs=90, deadline_s=86400), predict=IMAGES)
    by_name = {str(one): one for one in plan.simulated}
    for line in (line for line in plan.reasons if line.startswith("the best ")):
        other = next(one for name, one in by_name.items() if f", {name}, " in line)
        if found := re.search(r"takes (\d+) % longer", line):
            assert int(found[1]) == round(100 * (other.time_s / plan.pick.time_s - 1))
        if found := re.search(r"takes (\d+) % less time", line):
            assert int(found[1]) == round(100 * (1 - other.time_s / plan.pick.time_s))
        if found := re.search(r"costs (\d+) % more", line):
            assert int(found[1]) == round(100 * (other.money / plan.pick.money - 1))
        if found := re.search(r"costs ([\d.]+) times", line):
            assert float(found[1]) == pytest.approx(other.money / plan.pick.money, rel=0.06)


def test_a_close_alternative_is_preferred_to_a_far_one():
    plan = make_plan(WORKLOAD, "catalogue", Objective(epochs=90, deadline_s=86400), predict=IMAGES)
    assert plan.pick.in_flight <= 16
    assert any("accuracy was not considered" in line for line in plan.reasons) == (plan.pick.in_flight > 1)
    assert any(one.in_flight > 16 for one in plan.front), "it is shown all the same"


def test_a_rejected_far_alternative_is_reported():
    objective = Objective(epochs=90, deadline_s=2 * 86400)
    plan = make_plan(WORKLOAD, options_of(slow_network(1e9)), objective, predict=IMAGES)
    better = [one for one in plan.simulated if one.time_s <= 2 * 86400 and one.money < 0.98 * plan.pick.money]
    said = [line for line in plan.reasons if line.endswith("not picked without --target-accuracy")]
    assert bool(said) == bool(better)
    for line in said:
        assert any(line.startswith(str(one)) and one.in_flight > 8 for one in better)


def test_a_far_alternative_is_picked_when_nothing_else_meets_the_deadline():
    near = make_plan(WORKLOAD, "p5.48xlarge", Objective(epochs=90, budget=1e9), predict=IMAGES)
    deadline_s = near.pick.time_s / 2
    plan = make_plan(WORKLOAD, "p5.48xlarge", Objective(epochs=90, deadline_s=deadline_s), predict=IMAGES)
    assert plan.met and plan.pick.in_flight > 16
    assert "no plan with fewer is within" in plan.reasons[1]


def test_of_equals_the_less_stale_is_picked():
    """On an idle network everything takes as long as computing: one waits for all, and learns as one process does."""
    predictions = replace(IMAGES, parameter_bytes=4, interval=0.0, fixed_s=0.0)
    objective = Objective(epochs=1, deadline_s=1e8)
    plan = make_plan(
        WORKLOAD,
        options_of(slow_network(1e15)),
        objective,
        predict=predictions,
        strategies=("downpour", "sync"),
    )
    assert plan.pick.candidate.workers == 1 and plan.pick.in_flight <= 1


def test_without_prices_machine_hours_count():
    machine = replace(find_machine("g5.xlarge"), price_per_hour=None)
    places = options_of(Cluster("lab", (MachineCount(machine, 4),)))
    plan = make_plan(WORKLOAD, places, Objective(epochs=1), predict=IMAGES)
    assert plan.currency == "machine hours"
    assert plan.pick.money == pytest.approx(plan.pick.machines * plan.pick.time_s / 3600)
    with pytest.raises(InputError, match="`budget` needs prices"):
        make_plan(WORKLOAD, places, Objective(epochs=1, budget=5), predict=IMAGES)


def test_spot_prices_are_used_and_their_risk_is_reported():
    plan = make_plan(WORKLOAD, "catalogue", Objective(epochs=90, spot=True), predict=IMAGES)
    assert {one.candidate.machine for one in plan.simulated} <= {"p4de.24xlarge", "p5.48xlarge"}
    assert plan.excluded["machines without a spot price"] > 30
    assert any("interruptions are not included" in line for line in plan.reasons)


def test_where_nothing_fits_it_says_why():
    huge = replace(IMAGES, kept_bytes=10**12)
    with pytest.raises(PacelineError, match=r"no plan is possible: .*do not fit in memory"):
        make_plan(WORKLOAD, options_of(slow_network()), Objective(epochs=1), predict=huge)


def test_a_device_that_cannot_be_predicted_is_left_out_with_the_reason():
    def predict(workload, device):
        if device.name == "T4":
            raise InputError("there is no calibrated GPU to predict T4 from")
        return IMAGES(workload, device)

    plan = make_plan(WORKLOAD, "g4dn.xlarge,g5.xlarge", Objective(epochs=1), predict=predict)
    assert plan.excluded["cannot be predicted: there is no calibrated GPU to predict it from"] > 10
    with pytest.raises(InputError, match="no calibrated GPU"):
        make_plan(WORKLOAD, "g4dn.xlarge", Objective(epochs=1), predict=predict)


def test_data_of_unknown_size_are_refused():
    with pytest.raises(InputError, match="the number of samples per epoch is not known"):
        make_plan(WORKLOAD, "g5.xlarge", Objective(epochs=1), predict=replace(IMAGES, samples=0))


@pytest.mark.serial
@pytest.mark.slow
def test_the_catalogue_is_answered_in_half_a_minute_though_predictions_are_slow():
    class Slow(InventedPredictions):
        def __call__(self, workload, device):
            time.sleep(0.2)
            return super().__call__(workload, device)

    start_s = time.perf_counter()
    plan = make_plan(WORKLOAD, "catalogue", Objective(epochs=90, deadline_s=86400), predict=Slow(**vars(IMAGES)))
    took_s = time.perf_counter() - start_s
    print(f"{plan.candidates:,} candidates, {plan.predictions} predictions, {took_s:.1f} s")
    assert plan.candidates > 10_000 and took_s < 30


def test_the_same_question_has_the_same_answer():
    plans = [
        make_plan(WORKLOAD, options_of(invented_cluster(6)), Objective(epochs=3), predict=invented_predictions(6))
        for _ in range(2)
    ]
    first, second = (record.to_json(replace(plan, conditions={})) for plan in plans)
    assert first == second and np.isfinite(plans[0].pick.time_s)


@pytest.mark.slow
def test_with_real_predictions():
    """Nothing invented: the cost model's predictions and the simulation that others use."""
    workload = resolve("mlp", {})
    plan = make_plan(workload, "g5.xlarge,p5.4xlarge", Objective(epochs=5, deadline_s=3600))
    assert plan.met and plan.pick.time_s > 0 and plan.prediction.name == "mlp" and plan.prediction.samples == 1437
    assert plan.prediction.batch == plan.pick.candidate.batch
    assert len(plan.reasons) >= 3
