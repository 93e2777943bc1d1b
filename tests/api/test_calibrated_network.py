"""The network between the nodes of a Ray cluster is added to a calibration, and predictions use it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

import paceline
from paceline.api.predict import predict_workers
from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import calibration_path
from paceline.errors import InputError
from paceline.measurement.links import NODE_TO_NODE, LinkSpeed
from paceline.record import load, save
from paceline.reporting.verification import expected_outcome
from paceline.strategy.presets import find_strategy
from paceline.training.drivers.ray import connection, node_links
from tests.reporting.examples import a_virtual_run
from tests.simulation.test_on_cluster import prediction

DISK = LinkSpeed("disk to host", 1e-4, 1e9)
NETWORK = LinkSpeed(NODE_TO_NODE, 5e-3, 1e8)


def calibration(*links):
    return Calibration("cpu", "some CPU", (), {}, 1e9, 1e9, 0.0, links=links)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A calibration without a network, and a cluster whose network is measured at once."""

    @contextmanager
    def connected(address, cpus):
        assert (address, cpus) == ("10.0.0.1:6379", 0.0)
        yield None

    monkeypatch.setattr(connection, "connected", connected)
    monkeypatch.setattr(node_links, "measure_node_link", lambda ray: NETWORK)
    path = tmp_path / "machine.json"
    save(calibration(DISK, replace(NETWORK, latency_s=1.0)), path)
    return path


@pytest.fixture
def command_line(request):
    """The fixture `paceline`, whose name is the package's here."""
    return request.getfixturevalue("paceline")


def test_a_network_is_added_and_an_earlier_one_replaced(file):
    made = paceline.calibrate("cpu", address="10.0.0.1:6379", out=file)
    assert made.links == (DISK, NETWORK) == load(file).links


def test_a_network_needs_a_calibration_to_be_added_to(file, tmp_path):
    with pytest.raises(InputError, match="calibrate this machine first"):
        paceline.calibrate("cpu", address="10.0.0.1:6379", out=tmp_path / "none.json")


def test_the_command_prints_the_network(file, command_line):
    found = command_line("calibrate", "--address", "10.0.0.1:6379", "--out", str(file))
    assert found.code == 0 and "node to node, Ray: 5.00 ms, 0.80 Gb/s" in found.out


def test_workers_are_predicted_with_the_calibrated_network(file):
    paceline.calibrate("cpu", address="10.0.0.1:6379", out=file)
    big = prediction(0.2, parameter_bytes=25_000_000)
    found = predict_workers(big, 2, find_strategy("sync"), str(file), None)
    averaging_s = (5e-3 + 0.125) + (5e-3 + 0.125)
    assert found.step_s == pytest.approx(0.2 + averaging_s + 2 * 0.25 + 3 * 5e-3, rel=0.1)


def test_a_calibration_without_a_network_is_not_a_link(tmp_path):
    save(calibration(DISK), tmp_path / "machine.json")
    with pytest.raises(InputError, match=r"has no network between nodes: run `paceline.calibrate"):
        predict_workers(prediction(), 2, find_strategy("sync"), str(tmp_path / "machine.json"), None)


def on_nodes(nodes):
    run = a_virtual_run()
    assert run.distribution is not None
    made = replace(run.distribution, driver="ray", nodes=nodes)
    return replace(run, distribution=made, conditions=replace(run.conditions, device="cpu", device_name="some CPU"))


def test_a_run_on_several_nodes_is_verified_with_the_calibrated_network(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    big = prediction(0.2, parameter_bytes=25_000_000)
    with pytest.raises(InputError, match=r"not calibrated: run `paceline.calibrate"):
        expected_outcome(on_nodes(2), big)
    save(calibration(NETWORK), calibration_path("some CPU"))
    apart, together = (expected_outcome(on_nodes(nodes), big) for nodes in (2, 1))
    assert apart.machines > together.machines
    assert apart.step_s > together.step_s


def test_one_node_has_no_network_to_measure():
    alone = SimpleNamespace(nodes=lambda: [{"Alive": True, "NodeID": "a"}, {"Alive": False, "NodeID": "b"}])
    with pytest.raises(InputError, match="the cluster has one node"):
        node_links.measure_node_link(alone)
