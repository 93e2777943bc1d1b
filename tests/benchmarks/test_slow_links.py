"""Epochs of the Ray driver over slow links are predicted well, and in the right order."""

from __future__ import annotations

import pytest

from benchmarks.slow_links import BAR, BATCHES, STRATEGIES, Comparison, Found, compare, fitting, predicted_s


def comparison(*found):
    return Comparison(0.005, 125e6, tuple(Found(*each) for each in found))


def test_an_order_is_wrong_only_where_it_was_predicted_clearly():
    close = comparison((25, "sync", 10.0, 11.0), (25, "mixed", 11.0, 10.0))
    apart = comparison((25, "sync", 10.0, 11.0), (25, "mixed", 13.0, 10.0))
    other_size = comparison((25, "sync", 10.0, 11.0), (250, "mixed", 13.0, 10.0))
    assert not close.misordered and not other_size.misordered
    assert [(one.strategy, other.strategy) for one, other in apart.misordered] == [("sync", "mixed")]


@pytest.mark.slow
def test_larger_parameters_and_slower_links_take_longer():
    for name in STRATEGIES:
        small, large = (predicted_s(size, name, 0.005, 125e6) / BATCHES[size] for size in (1, 25))
        slower = predicted_s(25, name, 0.005, 12.5e6) / BATCHES[25]
        assert small < large < slower


@pytest.mark.soak
@pytest.mark.serial
@pytest.mark.timeout(1500)
def test_predicted_and_measured_epochs_agree_on_three_hosts():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'paceline[ray]'")
    try:
        found = compare(fitting(tuple(BATCHES)), STRATEGIES)
    except PermissionError as error:
        pytest.skip(str(error))
    off = {f"{each.megabytes} MB {each.strategy}": each.error for each in found.found if abs(each.error) > BAR}
    assert not off
    assert not found.misordered
