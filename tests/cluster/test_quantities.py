"""Quantities as people write them."""

from __future__ import annotations

import pytest

from paceline.cluster.quantities import quantity
from paceline.errors import InputError


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("24 GB", "size", 24e9),
        ("24GiB", "size", 24 * 2**30),
        (" 1_000 B ", "size", 1000),
        (4096, "size", 4096),
        ("10 Gb/s", "rate", 1.25e9),
        ("10 Gbit/s", "rate", 1.25e9),
        ("31.5 GB/s", "rate", 31.5e9),
        ("1.5e9", "rate", 1.5e9),
        ("50 us", "time", 50e-6),
        ("50 µs", "time", 50e-6),
        (0, "time", 0),
        ("19.5 TFLOP/s", "speed", 19.5e12),
        ("2 PFLOPS", "speed", 2e15),
    ],
)
def test_a_quantity_is_in_base_units(text, kind, value):
    assert quantity(text, kind, "x") == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("24 GBs", "size"),
        ("GB", "size"),
        ("", "size"),
        ("24 GB/s", "size"),
        ("24 GB", "rate"),
        ("-1 s", "time"),
        ("0 B", "size"),
        (True, "size"),
        (None, "rate"),
        ([1], "rate"),
        (float("inf"), "rate"),
        (10**400, "size"),
        ("1e400 B", "size"),
    ],
)
def test_anything_else_is_refused_by_name(text, kind):
    with pytest.raises(InputError, match=r"^here="):
        quantity(text, kind, "here")
