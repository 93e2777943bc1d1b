"""SkyPilot's catalogue: read whatever columns are added, rows that cannot be read counted and named."""

from __future__ import annotations

import pytest

from paceline.cluster import machines_of, read_skypilot
from paceline.errors import InputError

AWS = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,Zone,Arch
p5.48xlarge,H100,8.0,192.0,2048.0,"{'Gpus': [{'Name': 'H100'}], 'n': 8}",55.04,19.2531,us-east-1,use1-az2,x86_64
p5.48xlarge,H100,8.0,192.0,2048.0,,55.04,17.6289,us-east-1,use1-az6,x86_64
p5.48xlarge,H100,8.0,192.0,2048.0,,75.9552,,ap-northeast-2,apne2-az1,x86_64
g6f.large,L4,0.125,2.0,8.0,,0.202,,us-east-1,use1-az1,x86_64
a1.large,,,2.0,4.0,,0.051,0.051,us-east-1,use1-az2,arm64
trn1.2xlarge,Trainium,1.0,8.0,32.0,,1.34,,us-east-1,use1-az2,x86_64
"""
GCP = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice
a2-highgpu-1g,12.0,85.0,,,,us-central1,us-central1-a,0.73948,0.36975
,,,A100,1,A100,us-central1,us-central1-a,2.93391,
"""


@pytest.fixture
def read(tmp_path):
    def write_and_read(text: str):
        (tmp_path / "vms.csv").write_text(text)
        return read_skypilot(tmp_path / "vms.csv")

    return write_and_read


def test_rows_are_offers_and_empty_cells_are_not_known(read):
    found = read(AWS)
    assert len(found.offers) == 6 and found.refused_count == 0 and found.refused == ()
    first, second, third = found.find("p5.48xlarge")
    assert (first.accelerator, first.accelerator_count, first.vcpus) == ("H100", 8.0, 192.0)
    assert first.memory_bytes == 2048 * 2**30 and first.price_per_hour == 55.04
    assert second.spot_price_per_hour == 17.6289 and third.spot_price_per_hour is None
    assert [offer.instance for offer in found.find(region="us-east-1", accelerator="l4")] == ["g6f.large"]


def test_known_devices_become_machines_once_a_region_at_their_lowest_price(read):
    here, there = machines_of(read(AWS).offers, price_date="2026-11")
    assert (here.name, here.region, here.price_per_hour) == ("p5.48xlarge", "us-east-1", 55.04)
    assert here.spot_price_per_hour == 17.6289 and there.spot_price_per_hour is None
    assert here.devices[0].device.name == "H100 SXM" and here.devices[0].count == 8
    assert here.vcpus == 192 and here.price_date == "2026-11"
    with pytest.raises(InputError, match="has no host_device link"):
        here.link("host_device")


def test_an_accelerator_that_is_priced_by_itself_is_added_to_a_machine(read):
    found = read(GCP)
    (host,), (accelerator,) = found.find("a2-highgpu-1g"), found.find(accelerator="A100")
    assert accelerator.instance == "" and machines_of(found.offers) == ()
    both = host.with_accelerator(accelerator)
    assert both.price_per_hour == pytest.approx(3.67339) and both.spot_price_per_hour is None
    (machine,) = machines_of([both])
    assert machine.devices[0].device.name == "A100 40GB" and machine.vcpus == 12


def test_rows_that_cannot_be_read_are_named_and_counted(read):
    rows = [
        "bad,H100,eight,1,1,,1,1,r,z,x",
        "bad,H100,8,1,1,,-1,1,r,z,x",
        "bad,H100,8,1,1,,nan,1,r,z,x",
        "bad,H100",
        "bad,H100,8,1,1,,1,1,r,z,x,more",
        ",,,,,,,,,,",
        "bad,H100,,1,1,,1,1,r,z,x",
    ]
    found = read(AWS + "\n".join(rows) + "\n")
    assert len(found.offers) == 6 and found.refused_count == 7
    assert found.refused[0] == "line 8: AcceleratorCount 'eight' should be a number of at least 0"
    assert [line.partition(":")[0] for line in found.refused] == [f"line {n}" for n in range(8, 15)]
    many = read(AWS + 50 * (rows[0] + "\n"))
    assert many.refused_count == 50 and len(many.refused) == 20


def test_a_file_of_something_else_is_refused(read, tmp_path):
    with pytest.raises(InputError, match=r"no column AcceleratorName \(did you mean AccelName"):
        read(AWS.replace("AcceleratorName", "AccelName"))
    with pytest.raises(InputError, match="no column InstanceType"):
        read("")
    with pytest.raises(InputError, match="no file"):
        read_skypilot(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"a,b\n\xff\xfe")
    with pytest.raises(InputError, match="is not a CSV file"):
        read_skypilot(tmp_path / "bytes.csv")
