"""`catalogue`: what is known, and what a file of one's own describes."""

from __future__ import annotations

import json

import pytest

from paceline.cluster import known_devices, known_links, known_machines

SKYPILOT = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region
p5.48xlarge,H100,8,192,2048,55.04,19.25,us-east-1
bad,H100,8,192,2048,much,19.25,us-east-1
"""


@pytest.mark.parametrize(
    ("what", "known"), [("devices", known_devices), ("links", known_links), ("machines", known_machines)]
)
def test_what_is_known_is_listed_and_the_same_as_json(paceline, what, known):
    result = paceline("catalogue", what, "--json", "-")
    assert result.code == 0
    assert [row["name"] for row in result.json] == [record.name for record in known()]
    assert result.err.splitlines()[0].split()[0] == what.rstrip("s")
    shown = paceline("catalogue", what)
    assert shown.err == "" and all(record.name.split()[0] in shown.out for record in known())


def test_machines_are_listed_without_a_word(paceline):
    assert paceline("catalogue").out == paceline("catalogue", "machines").out


def test_a_device_s_row_has_its_figures(paceline):
    (row,) = [line for line in paceline("catalogue", "devices").out.splitlines() if line.startswith("A100 40GB ")]
    assert row.split()[2:] == ["gpu", "ampere", "2020", "108", "19.5", "156", "312", "312", "40", "1,555"]


def test_a_machine_s_price_is_shown_with_its_date(paceline):
    (row,) = [line for line in paceline("catalogue", "machines").out.splitlines() if line.startswith("p4d.24xlarge ")]
    assert "8 A100 40GB" in row and "21.9576" in row and " USD " in row and row.split()[-2:] == ["us-east-1", "2025-07"]


def test_the_price_table_of_2017(paceline):
    result = paceline("catalogue", "prices")
    for price in ("1,272.17", "12,244.24", "27,156.53", "4,598.06", "20,595.77", "41,410.21"):
        (row,) = [line for line in result.out.splitlines() if price in line]
        assert row.split().count(price) == 2, "computed and printed"
    assert "August 2017" in result.out
    rows = paceline("catalogue", "prices", "--json", "-").json
    assert [row["vcpus"] for row in rows] == [4, 32, 64, 1, 8, 16]
    assert [row["gpu_memory_bytes"] // 2**30 for row in rows] == [0, 0, 0, 24, 96, 192]
    assert rows[0]["machine"]["price_date"] == "2017-08"


def test_a_file_of_one_s_own_is_shown(paceline, tmp_path):
    (tmp_path / "cluster.toml").write_text('[[machines]]\nlike = "g2-standard-4"\ncount = 3\n')
    result = paceline("catalogue", "cluster.toml", "--json", "out.json")
    assert result.code == 0 and result.err == ""
    assert "cluster: 3 machines, 3 GPUs, 10 Gb/s Ethernet between them, 2.1204 USD per hour in total" in result.out
    assert json.loads((tmp_path / "out.json").read_text())["machines"][0]["count"] == 3


def test_a_file_of_skypilot_is_shown_with_what_could_not_be_read(paceline, tmp_path):
    (tmp_path / "vms.csv").write_text(SKYPILOT)
    result = paceline("catalogue", "vms.csv")
    assert result.code == 0
    assert (
        "55.04" in result.out
        and "1 row; 1 machine with devices" in result.out
        and "1 row could not be read:" in result.out
    )
    assert "line 3: Price 'much' should be a number of at least 0" in result.out
    assert paceline("catalogue", "vms.csv", "--json", "-").json["refused_count"] == 1


def test_a_mistake_is_one_line(paceline, tmp_path):
    assert paceline("catalogue", "device").refused().endswith("did you mean devices?")
    assert paceline("catalogue", "none.toml").refused() == "none.toml: no such file"
    assert "no file none.csv" in paceline("catalogue", "none.csv").refused()
    (tmp_path / "cut.toml").write_text('[[machines]]\nname = "a')
    assert paceline("catalogue", "cut.toml").refused().startswith("cut.toml: not valid TOML")
    (tmp_path / "wrong.csv").write_text("a,b\n1,2\n")
    assert "no column InstanceType" in paceline("catalogue", "wrong.csv").refused()
    assert "is a directory" in paceline("catalogue", "devices", "--json", tmp_path).refused()
