"""cluster.toml: one's own machines; a mistake is one line that names the file, the key and what to write."""

from __future__ import annotations

import pytest

from paceline.cluster import find_device, find_link, find_machine, read_cluster
from paceline.errors import InputError

WHOLE = """
name = "lab"
network = "10 Gb/s Ethernet"

[[machines]]
name = "box"
count = 2
devices = { "rtx-4090" = 2, "my card" = 1 }
vcpus = 32
memory = "128 GiB"
host_device = "PCIe 4.0 x16"
disk = { latency = "80 us", bandwidth = "7 GB/s" }
network = "office"
price = 1.2
spot_price = 0.4
price_date = 2026-11-01
region = "here"

[[machines]]
like = "g2-standard-4"
count = 4
price = 5256
per = "year"

[devices."my card"]
kind = "gpu"
float32 = "20 TFLOP/s"
bfloat16 = 4e13
memory = "16 GiB"
memory_bandwidth = "500 GB/s"
relative = "ampere"

[links.office]
latency = 1e-4
bandwidth = "1 Gb/s"
"""
MACHINE = '[[machines]]\nname = "a"\ndevices = { "RTX 4090" = 1 }\nhost_device = "PCIe 4"\n'


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_and_read(text: str):
        (tmp_path / "cluster.toml").write_text(text)
        return read_cluster("cluster.toml")

    return write_and_read


def test_a_whole_file(read):
    cluster = read(WHOLE)
    assert cluster.name == "lab" and cluster.machine_count == 6 and cluster.count("gpu") == 10
    assert cluster.network == find_link("10 Gb/s Ethernet")
    box, rented = (each.machine for each in cluster.machines)
    assert [(each.device.name, each.count) for each in box.devices] == [("RTX 4090", 2), ("my card", 1)]
    card = box.devices[1].device
    assert (card.peak.float32, card.peak.bfloat16, card.memory_bytes) == (20e12, 4e13, 16 * 2**30)
    assert box.memory_bytes == 128 * 2**30 and box.price_date == "2026-11-01"
    assert box.network.bandwidth == 1.25e8 and box.network.name == "office"
    assert (box.disk.latency_s, box.disk.bandwidth) == (pytest.approx(8e-5), 7e9)
    assert box.price(3600, spot=True) == 0.4
    assert rented.price_per_hour == pytest.approx(0.6)
    assert rented.devices == find_machine("g2-standard-4").devices and rented.name == "g2-standard-4"
    assert cluster.price_per_hour == pytest.approx(4.8)


def test_a_device_of_one_s_own_goes_before_the_catalogue(read):
    cluster = read(MACHINE + '[devices."rtx 4090"]\nkind = "gpu"\nfloat32 = 1e12\n')
    assert cluster.machines[0].machine.devices[0].device.peak.float32 == 1e12
    assert find_device("RTX 4090").peak.float32 == 82.6e12


def test_a_cpu_alone_needs_one_line(read):
    cluster = read('[[machines]]\ndevices = "i7-6700"\n')
    assert cluster.name == "cluster" and cluster.machines[0].machine.name == "machine 1"
    assert cluster.network is None and cluster.count("cpu") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[machines]]\nname="a"\ndevices="L4"', "machine 'a' has no host_device link (between host and devices): "
            'write host_device = "PCIe 4.0 x16" or host_device = { latency = "10 us", bandwidth = "31.5 GB/s" }'),
        (MACHINE + "count = 2", "machine 'a' has no network link (to other machines): write network = "),
        ('[[machines]]\nname="a"\ndevices={"RTX 4099"=1}', "machines.a.devices: no device 'RTX 4099': "
            "did you mean RTX 4090"),
        ('[[machines]]\ndevices={"L4"=0}', "machines[0].devices.L4=0 should be a whole number of at least 1"),
        ('[[machines]]\ndevices=["L4"]', "machines[0].devices=['L4'] should be a name, or names and counts"),
        ("[[machines]]\ndevices={}", "has no devices"),
        ('[[machines]]\nname="a"', 'machines.a has no devices: write devices = { "RTX 4090" = 2 }'),
        (MACHINE + "count = -2", "machines.a.count=-2 should be a whole number"),
        (MACHINE + 'count = "2"', "machines.a.count='2' should be a whole number"),
        (MACHINE + "vcpus = 2.5", "vcpus=2.5 should be a whole number"),
        (MACHINE + "vcpus = 1" + 400 * "0", "vcpus=1000"),
        (MACHINE + "memory = 1" + 400 * "0", "machines.a.memory=1000"),
        (MACHINE + 'memory = "-3 GB"', "machines.a.memory='-3 GB' should be a finite number above 0"),
        (MACHINE + 'memory = "3 gb"', "machines.a.memory='3 gb': no unit 'gb': known: B, GB"),
        (MACHINE + 'memory = "much"', "machines.a.memory='much' should be a number of bytes, or text such as '24 GB'"),
        (MACHINE + "memory = nan", "machines.a.memory=nan"),
        (MACHINE + "memory = true", "machines.a.memory=True should be a number of bytes"),
        (MACHINE + 'memroy = "3 GB"', "machines.a has no key 'memroy': did you mean memory?"),
        (MACHINE + "price = -1", "machines.a.price=-1 should be a finite number of at least 0"),
        (MACHINE + "price = inf", "machines.a.price=inf"),
        (MACHINE + 'price = "1"', "machines.a.price='1' should be a number"),
        (MACHINE + 'per = "day"', "machines.a.per='day' is unknown: known: hour, year"),
        (MACHINE + 'price_date = "soon"', "price_date='soon' should be YYYY, YYYY-MM or YYYY-MM-DD"),
        (MACHINE + 'disk = "nvme sdd"', "machines.a.disk: no link 'nvme sdd': did you mean NVMe SSD"),
        (MACHINE + 'disk = { latency = "1 us" }', "machines.a.disk has no bandwidth: write bandwidth = "),
        (MACHINE + "disk = { latency = -1, bandwidth = 1 }", "machines.a.disk.latency=-1 should be"),
        (MACHINE + 'disk = { latency = 1, bandwidth = "0 GB/s" }', "machines.a.disk.bandwidth='0 GB/s' should be"),
        (MACHINE + "disk = { latency = 1, bandwidth = 1, speed = 2 }", "machines.a.disk has no key 'speed'"),
        (MACHINE + "disk = 3", "machines.a.disk=3 should be the name of a link, or {"),
        (MACHINE + 'like = "p5.48xlrge"', "machines.a.like: no machine 'p5.48xlrge': did you mean p5.48xlarge"),
        (MACHINE + "like = 5", "machines.a.like: 5 should be the name of a machine"),
        (MACHINE + MACHINE, "two machines 'a'"),
        (MACHINE + "[devices.x]\nfloat32 = 1", 'devices.x has no kind: write kind = "gpu"'),
        (MACHINE + '[devices.x]\nkind = "tpu"', "kind='tpu' is unknown"),
        (MACHINE + '[devices.x]\nkind = "gpu"\nfloat23 = 1', "devices.x has no key 'float23': did you mean float32"),
        (MACHINE + '[devices.x]\nkind = "gpu"\nfloat32 = "1 TB"', "devices.x.float32='1 TB': no unit 'TB'"),
        (MACHINE + "[devices]\nx = 3", "devices.x should be a table, not 3"),
        (MACHINE + "[links.x]\nbandwidth = 1", "links.x has no latency: write latency = "),
        ("links = 1\n" + MACHINE, "links should be a table"),
        ('netwrk = "x"\n' + MACHINE, "the file has no key 'netwrk': did you mean network?"),
        ("name = 3\n" + MACHINE, "name=3 should be text"),
        ("", "it has no machines: write at least one [[machines]]"),
        ("[machines]\nx = 1", "it has no machines: write at least one [[machines]]"),
        ('machines = ["x"]', "machines[0] should be a table, not 'x'"),
        (MACHINE[:-5], "not valid TOML: "),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_file_and_key(read, text, words):
    with pytest.raises(InputError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith("cluster.toml: ") and words in message and "\n" not in message


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_cluster(tmp_path / "none.toml")
    with pytest.raises(InputError, match="Is a directory"):
        read_cluster(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not valid TOML"):
        read_cluster(tmp_path / "bytes.toml")
