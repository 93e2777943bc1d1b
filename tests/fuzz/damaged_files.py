"""Valid files with damage: single bytes, values of another kind or size, missing keys, files that are none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.case import Case
from tests.fuzz.material import RECORDS

BAD_TOML_VALUES = ("", "nan", "-1", "0", "1e308", "true", '"text"', "[]", "[[1]]", "{}", "1979-05-27", "9" * 5000,
                   "[" * 3000, "'a\\u0000b'", "99999999999999999999", '"sys:exit"', '"no:thing"')  # fmt: skip
BAD_JSON_VALUES = (None, -1, -1.5, 1e308, float("nan"), 10**400, True, "text", [], {}, [[]], "9" * 5000, "sys:exit")
READERS = {
    "workload.toml": (("train", "workload.toml"), ("predict", "workload.toml", "--device", "calibration.json")),
    "cluster.toml": (
        ("catalogue", "cluster.toml"),
        ("simulate", "mlp", "--strategy", "sync", "--workers", "2", "--cluster", "cluster.toml"),
    ),
    "experiment.toml": (("compare", "experiment.toml", "--list"),),
    "run/record.json": (("report", "run", "--out", "p.html"), ("evaluate", "run"), ("train", "--resume", "run")),
    "distributed/record.json": (("report", "distributed", "--out", "p.html"),),
    "measured/measurement.json": (("measure", "--load", "measured"), ("report", "measured", "--out", "p.html"),
                                  ("verify", "measured", "--device", "calibration.json")),
    "simulated/record.json": (("report", "simulated", "--out", "p.html"),),
    "scaled/scaling.json": (("report", "scaled", "--out", "p.html"),),
    "planned/plan.json": (
        ("report", "planned", "--out", "p.html"), ("train", "--plan", "planned", "--device", "cpu", "--workers", "1"),
    ),
    "calibration.json": (("predict", "mlp", "--device", "calibration.json"),),
    "run/checkpoint.pt": (("evaluate", "run"), ("train", "--resume", "run")),
}  # fmt: skip
"""By the file that is damaged: what reads it."""
MAY_BE_NEGATIVE = ("overhead_s",)
"""The difference of two measured times."""
QUANTITY = re.compile(r"(_s|_bytes|seconds|flops|bandwidth)$")


def damaged_file(chance: Random, material: Path) -> Case:
    name = chance.choice(sorted(READERS))
    arguments = chance.choice(READERS[name])
    whole = (material / name).read_bytes()
    top = name.split("/")[0]
    copies = {top: top, "calibration.json": "calibration.json"}
    if chance.random() < 0.06:
        return _no_file(chance, name, arguments, copies)
    content, must_fail = _damaged(chance, name, whole)
    # A record beside a checkpoint is not read to resume or evaluate; a page leaves out what it cannot read.
    reads = not (name == "run/record.json" and arguments[0] in ("evaluate", "train"))
    return Case(arguments, must_fail and reads, copies, {name: content})


def _no_file(chance: Random, name: str, arguments: tuple[str, ...], copies: dict[str, str]) -> Case:
    if "/" in name:
        name = name.split("/")[0]
        copies = {key: value for key, value in copies.items() if key != name}
        return Case(arguments, True, copies, links={name: chance.choice([name, "nowhere", "/dev/null"])})
    copies = {key: value for key, value in copies.items() if key != name}
    if chance.random() < 0.3:
        return Case(arguments, True, copies, folders=(name,))
    nothing = [name, "nowhere"] if name.endswith(".toml") else [name, "nowhere", "/dev/null"]  # TOML may be empty
    return Case(arguments, True, copies, links={name: chance.choice(nothing)})


def _damaged(chance: Random, name: str, whole: bytes) -> tuple[bytes, bool]:
    if name.endswith(".pt"):
        return _damaged_bytes(chance, whole)
    if chance.random() < 0.25:
        return _damaged_bytes(chance, whole)[0], False
    return _damaged_toml(chance, whole.decode()) if name.endswith(".toml") else _damaged_record(chance, name, whole)


def _damaged_bytes(chance: Random, whole: bytes) -> tuple[bytes, bool]:
    at = chance.randrange(len(whole))
    what = chance.randrange(4)
    if what == 0:
        return whole[:at], True
    if what == 1:
        return whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :], False
    if what == 2:
        return whole[:at] + chance.randbytes(chance.randrange(1, 40)) + whole[at:], False
    return chance.randbytes(chance.randrange(200)), True


def _damaged_toml(chance: Random, text: str) -> tuple[bytes, bool]:
    lines = text.splitlines()
    what = chance.randrange(4)
    keys = [i for i, line in enumerate(lines) if " = " in line]
    at = chance.choice(keys)
    key = lines[at].split(" = ")[0]
    if what == 0:
        lines[at] = f"{key} = {chance.choice(BAD_TOML_VALUES)}"
        return "\n".join(lines).encode(), False
    if what == 1:
        lines.insert(at, f"no_such_key = {chance.choice(('1', 'true', '[]'))}")
        return "\n".join(lines).encode(), True
    if what == 2:
        lines.insert(at, lines[at])
        return "\n".join(lines).encode(), True
    del lines[at]
    return "\n".join(lines).encode(), False


def _damaged_record(chance: Random, name: str, whole: bytes) -> tuple[bytes, bool]:
    content = json.loads(whole)
    if chance.random() < 0.1:
        key = chance.choice(["schema", "kind"])
        content[key] = chance.choice([None, 99, -5, "thing", []])
        return json.dumps(content).encode(), True
    holder, key, where = _leaf(chance, content)
    if chance.random() < 0.15:
        if isinstance(holder, dict):
            del holder[key]
        else:
            holder.pop(key)
        return json.dumps(content).encode(), False
    before = holder[key]
    holder[key] = value = chance.choice(BAD_JSON_VALUES)
    quantity = isinstance(before, float) and bool(QUANTITY.search(where))
    wrong = quantity and value in ((1e308, 10**400) if where in MAY_BE_NEGATIVE else (-1, -1.5, 1e308, 10**400))
    not_json = isinstance(value, float) and value != value
    return json.dumps(content).encode(), wrong or not_json


def _leaf(chance: Random, content: Any) -> tuple[Any, Any, str]:
    """A random value deep inside, where it is, and the name of the field that holds it."""
    holder, key, where = content, chance.choice([k for k in content if k not in ("schema", "kind")]), ""
    while True:
        where = key if isinstance(key, str) else where
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.05:
            return holder, key, where
        holder, key = inner, chance.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))


assert set(RECORDS) < set(READERS)
