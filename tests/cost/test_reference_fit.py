"""Step overheads with the error of networks left out, and layers of reference networks as trials."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

import paceline.cost.reference_fit as room
from paceline.cost.calibration import Calibration
from paceline.cost.reference_fit import composed, left_out, overheads_with_error, with_references
from paceline.cost.reference_run import reference_run
from paceline.cost.step_overheads import fit_overheads
from paceline.measurement.network_times import NetworkTimes
from tests.cost.invented import Law, calibration
from tests.cost.test_step_overheads import network


def test_the_error_of_a_network_that_is_left_out():
    alike = [network(number) for number in range(1, 7)]
    odd = [*alike, network(9, iteration_s=2 * network(9).times.iteration_s)]
    mixed = [network(n, iteration_s=(1 + n % 2) * network(n).times.iteration_s) for n in range(1, 7)]
    few, more, most = (overheads_with_error(runs, on_gpu=False).iteration_log_sd for runs in (alike, odd, mixed))
    assert 0 < few < 0.1 and more < 2 * few  # one exception says little
    assert most > 5 * few
    assert overheads_with_error(alike[:1], on_gpu=False).iteration_log_sd == 0.0  # none is left to fit to


def test_two_thirds_of_the_networks_left_out_are_within_one_standard_deviation():
    runs = [network(n, iteration_s=(1 + 0.1 * n) * network(n).times.iteration_s) for n in range(1, 7)]
    errors = sorted(abs(log(made.seconds / run.times.iteration_s)) for run, made in left_out(runs, on_gpu=False))
    assert errors[3] < overheads_with_error(runs, on_gpu=False).iteration_log_sd < errors[4]


def test_the_interval_of_a_network_left_out_does_not_know_its_error():
    runs = [network(number) for number in range(1, 6)]
    slow = [replace(run, times=replace(run.times, iteration_s=3 * run.times.iteration_s)) for run in runs[:1]]
    (found,) = [made for run, made in left_out([*slow, *runs[1:]], on_gpu=False, with_error=True) if run is slow[0]]
    assert found.high_s < slow[0].times.iteration_s


def test_a_network_is_composed_as_it_would_be_predicted():
    runs = [network(number) for number in range(1, 9)]
    made = composed(runs[4], fit_overheads(runs, on_gpu=False), on_gpu=False)
    whole = sum(map(sum, runs[4].times.layers.values()))
    assert sum(made.parts_s[part] for part in ("forward", "backward")) == pytest.approx(whole, rel=0.15)


def times(calibrated: Calibration, factor: float, batch: int, step: str = "graph") -> NetworkTimes:
    """Of a small network whose layers take `factor` times as long as their operations alone."""
    given = NetworkTimes("lenet5", batch, step, "float32", "synthetic:1x28x28/10:512", "sgd", 1.0, {}, {})
    _, run = reference_run(calibrated, given)
    layers: dict[str, list[float]] = {}
    for each in run.costed:
        both = layers.setdefault(each.operation.row, [0.0, 0.0])
        both[each.operation.direction == "backward"] += factor * each.seconds
    found = {row: (forward, backward) for row, (forward, backward) in layers.items()}
    host_s = 0.0 if step == "graph" else 5e-3
    return replace(given, layers=found, iteration_s=max(host_s, sum(map(sum, found.values()))), host_s=host_s)


def test_layers_of_captured_networks_on_a_gpu_become_trials():
    made = calibration("cuda", Law(), count=12)
    measured = [times(made, 3.0, batch, step) for batch in (32, 64, 128) for step in ("graph", "plain")]
    found = with_references(made, measured)
    assert set(found.step_overheads) == {"graph", "plain"}
    assert found.step_overheads["plain"].host_factor > 0 and found.references == tuple(measured)
    more = len(found.sets[0].from_networks)
    assert (
        found.sets[0].trials == made.sets[0].trials and more > 10 and more % 3 == 0
    )  # as many of each of the three captured networks, of eager ones none
    _, before = reference_run(made, measured[0])
    _, after = reference_run(found, measured[0])
    slow = [b.seconds / a.seconds for a, b in zip(before.costed, after.costed, strict=True) if a.seconds > 5e-6]
    assert max(slow) > 1.5
    # What the network itself taught is not used to say how far off one that was never measured is.
    assert found.step_overheads["graph"].factors["relu"] > 1.1
    assert with_references(found, measured) == found  # a calibration can be fitted again


def test_on_a_cpu_trials_stay_what_they_are(monkeypatch):
    monkeypatch.setattr(
        room, "network_trials", lambda runs: pytest.fail("layers include the cost of calls") if runs else {}
    )
    made = calibration("cpu", Law(), count=12)
    assert with_references(made, [times(made, 1.5, 32, "flat")]).sets == made.sets
