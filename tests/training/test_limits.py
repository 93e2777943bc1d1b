"""Sizes that cannot fit are refused with one line before memory is taken."""

from __future__ import annotations

import time

import pytest

import paceline
from paceline import data
from paceline.errors import DataError, InputError, NetworkError, StrategyError, WorkloadError
from paceline.free_memory import free_memory_bytes
from paceline.step.build import build_network, load_data
from paceline.training.limits import check_workers
from paceline.workload import Workload, resolve


@pytest.fixture(scope="module")
def imported():
    """What loading data imports is no part of the time of a test."""
    for source in ("digits", "text:50"):
        data.load(source)


@pytest.fixture(autouse=True)
def soon(imported):
    start_s = time.process_time()
    yield
    assert time.process_time() - start_s < 2


@pytest.mark.parametrize("driver", ["ray", "virtual"])
def test_absurd_numbers_of_workers_are_refused(driver):
    with pytest.raises(StrategyError, match=r"1,000,000,000.* workers need at least .* GB .*: use fewer workers"):
        check_workers(10**9, driver)
    with pytest.raises(StrategyError, match="over 1,000,000 GB"):
        check_workers(99999999 * 9999999, driver)


def test_one_machine_has_a_limit_of_its_own_whatever_memory_is_free(monkeypatch):
    for free_gb in (1, 10**6):
        monkeypatch.setattr("paceline.training.limits.free_memory_bytes", lambda free_gb=free_gb: free_gb * 10**9)
        with pytest.raises(StrategyError, match="workers=241 are too many for one machine: at most 240"):
            check_workers(241, "local")
    check_workers(240, "local")
    monkeypatch.setattr("paceline.training.limits.free_memory_bytes", lambda: 10**9)
    with pytest.raises(StrategyError, match=r"240 workers need at least 7\.\d+ GB of memory, 1.* GB are free"):
        check_workers(240, "local")


@pytest.mark.parametrize(
    "settings",
    [
        {"workers": 10**9},
        {"workers": 10**12, "strategy": "downpour", "driver": "virtual"},
        {"workers": 10**7, "driver": "local"},
        {"groups": "100000x100000"},
        {"groups": 10**9, "strategy": "mixed"},
        {"workers": 2, "server_threads": 10**9},
        {"workers": 2, "backup_workers": 10**9, "strategy": "backup"},
    ],
    ids=str,
)
def test_absurd_distributions_are_refused_in_one_line_before_anything_is_loaded(settings, monkeypatch):
    monkeypatch.setattr("paceline.training.training_run.load_data", lambda *_: pytest.fail("the data were loaded"))
    with pytest.raises(InputError) as refused:
        paceline.train("mlp", data="digits", **settings)
    assert "\n" not in str(refused.value)


def test_what_fits_is_allowed():
    check_workers(2, "local")
    check_workers(10_000, "virtual")


@pytest.mark.parametrize("source", ["synthetic:100000x100000", "synthetic:8/9999999999", "synthetic:8:99999999999"])
def test_synthetic_data_that_do_not_fit_are_refused(source):
    with pytest.raises(DataError, match=f"data '{source}' takes .* GB of memory, .* GB are free"):
        data.load(source)


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ("mlp", {"hidden": 10**10}),
        ("mlp", {"hidden": [10**6, 10**6]}),
        ("lstm", {"hidden": 10**7}),
        ("textlstm", {"embedding": 10**11}),
        ("transformer", {"width": 10**8}),
    ],
)
def test_a_network_that_does_not_fit_is_refused(network, options):
    source = "text:50" if network in ("textlstm", "transformer") else "digits"
    workload = resolve(network, {"data": source, "batch": 8})
    workload = Workload(**{**vars(workload), "options": options})
    dataset = load_data(workload)
    with pytest.raises(NetworkError, match=rf"{network} is too large: .* GB are free; use smaller layers"):
        build_network(workload, dataset)


@pytest.mark.parametrize("network", ["textlstm", "transformer"])
def test_a_network_that_is_too_deep_is_refused(network):
    workload = Workload(network=network, data="text:50", batch=8, options={"depth": 10**9})
    with pytest.raises(NetworkError, match="depth = 1000000000 is more than 1,000"):
        build_network(workload, load_data(workload))


def test_epochs_and_batches_have_a_largest_value():
    with pytest.raises(WorkloadError, match=r"epochs=1000000000000 should be a whole number from 1 to 1,000,000"):
        Workload(epochs=10**12)
    with pytest.raises(WorkloadError, match=r"batch=10000000000 should be a whole number from 1 to 2,147,483,647"):
        Workload(batch=10**10)


def test_there_is_some_free_memory():
    assert free_memory_bytes() > 1 << 20
