"""What can be wrong with a cluster is said in one line, before anything starts."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from paceline.errors import InputError, PacelineError, StrategyError
from paceline.strategy.presets import find_strategy
from paceline.training.drivers.ray.connection import Shares, check_room, connected, import_ray
from paceline.training.starting import Setup
from tests.contract.small_training import workload
from tests.training.drivers.ray.in_process import job_of


def test_without_ray_one_line_says_how_to_install_it(monkeypatch, paceline):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'paceline\[ray\]'"):
        import_ray()
    refused = paceline("train", "mlp", "--data", "digits", "--driver", "ray", "--workers", "2").refused()
    assert refused == "--driver ray needs Ray: pip install 'paceline[ray]'"


def cluster(*nodes):
    return SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": node} for node in nodes])


@pytest.mark.parametrize(
    ("nodes", "shares", "places"),
    [
        (({"CPU": 2.0}, {"CPU": 2.0}), Shares(1.0, 0.0), 4),
        (({"CPU": 3.0}, {"CPU": 3.0}), Shares(2.0, 0.0), 2),
        (({"CPU": 8.0, "GPU": 1.0}, {"CPU": 8.0}), Shares(1.0, 1.0), 1),
    ],
)
def test_too_few_resources_are_counted_node_by_node(nodes, shares, places):
    check_room(cluster(*nodes), places, shares)
    with pytest.raises(PacelineError, match=f"do not fit: .* on 2 nodes, room for {places}; use fewer `workers`"):
        check_room(cluster(*nodes), places + 1, shares)


def test_a_node_with_another_version_is_named():
    job, _ = job_of(workload(), find_strategy("sync"), 2, versions={"paceline": "0.0"})
    with pytest.raises(
        InputError, match=r"node 10\.0\.0\.2 has paceline .*, but the driver process has 0\.0: install the"
    ):
        job.check_versions("10.0.0.2")


def test_settings_of_a_cluster_are_for_this_driver():
    with pytest.raises(StrategyError, match="`address` is for a Ray cluster: it needs `driver='ray'`"):
        Setup.of({"workers": 2, "driver": "local", "address": "auto"})
    with pytest.raises(StrategyError, match="`compute_time` is simulated: it needs `driver='virtual'`"):
        Setup.of({"workers": 2, "driver": "ray", "compute_time": 1.0})
    with pytest.raises(StrategyError, match="`collective` is for real workers: it needs `driver='local'`"):
        Setup.of({"workers": 2, "driver": "virtual", "collective": "gloo"})


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "no.such.host.invalid:6379"])
def test_a_wrong_address_is_one_line_and_no_hang(address):
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="cannot connect to the cluster at") as caught, connected(address, 1):
        pass
    assert "\n" not in str(caught.value)
