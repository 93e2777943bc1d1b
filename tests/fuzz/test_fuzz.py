"""Every malformed call and damaged file is refused in one line; a case is repeated with `-k` and its number."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from paceline.fork_server import ForkServer
from tests.fuzz.case import Case
from tests.fuzz.child import PRELOAD, run_command
from tests.fuzz.damaged_files import READERS, damaged_file
from tests.fuzz.malformed_calls import BASES, COPIES, malformed_call, verbs
from tests.fuzz.material import make_material
from tests.fuzz.verdict import contents, faults

SEED = 14
CHUNK = 50


@pytest.fixture(scope="session")
def material(tmp_path_factory) -> Path:
    return make_material(tmp_path_factory.mktemp("fuzz") / "material")


@pytest.fixture(scope="module")
def server():
    server = ForkServer(PRELOAD)
    yield server
    server.close()


def case(number: int, material: Path) -> Case:
    chance = Random(f"{SEED} {number}")
    return malformed_call(chance, verbs()) if number % 2 else damaged_file(chance, material)


def check(numbers: range, material: Path, server: ForkServer, tmp_path: Path) -> None:
    found = []
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in numbers:
        each, directory = case(number, material), tmp_path / str(number)
        each.prepare(directory, material)
        before = contents(directory)
        ending = run_command(server, each.arguments, directory, logs)
        found += [
            f"case {number}: {fault}: {each}\n{ending.err[-1500:]}" for fault in faults(each, ending, before, directory)
        ]
    assert not found, "\n\n".join(found)


def chunks(count: int) -> list[range]:
    return [range(first, first + CHUNK) for first in range(0, count, CHUNK)]


@pytest.mark.slow
def test_without_damage_every_call_succeeds(material, server, tmp_path):
    calls = [(verb, [*verb.split(), *words]) for verb, words in BASES.items()]
    calls += [(name, list(words)) for name, readers in READERS.items() for words in readers]
    logs = tmp_path / "logs"
    logs.mkdir()
    for number, (name, words) in enumerate(calls):
        top = name.split("/")[0]
        copies = {**COPIES, **({top: top} if (material / top).exists() else {})}
        whole, directory = Case(tuple(words), False, copies), tmp_path / str(number)
        whole.prepare(directory, material)
        ending = run_command(server, whole.arguments, directory, logs)
        assert ending.code == 0, (words, ending.err)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", chunks(200), ids=str)
def test_two_hundred_cases(numbers, material, server, tmp_path):
    check(numbers, material, server, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("numbers", chunks(2000)[4:], ids=str)
def test_the_rest_of_two_thousand_cases(numbers, material, server, tmp_path):
    check(numbers, material, server, tmp_path)


def test_the_verdict_notices_what_is_wrong(tmp_path):
    from tests.fuzz.child import HUNG, Ending

    before = contents(tmp_path)
    good, bad = Case(("models",), must_fail=False), Case(("models",), must_fail=True)
    said = "paceline: no\n"
    assert faults(good, Ending(0, "", "", ()), before, tmp_path) == []
    assert faults(bad, Ending(2, "", said, ()), before, tmp_path) == []
    for ending in (
        Ending(0, "", "", ()), Ending(99, "", "Traceback", ()), Ending(HUNG, "", "", ()), Ending(2, "", "no\n", ()),
        Ending(2, "", said + said, ()), Ending(1, "", "", ()), Ending(2, "", said, ("python",)),
        Ending(-11, "", "", ()),
    ):  # fmt: skip
        assert faults(bad, ending, before, tmp_path) != [], ending
    (tmp_path / ".record.json.1.tmp").touch()
    assert faults(good, Ending(0, "", "", ()), before, tmp_path) != []


def test_cases_follow_from_the_seed_and_cover_every_verb(tmp_path):
    known = verbs()
    made = [malformed_call(Random(f"{SEED} {number}"), known) for number in range(1, 401, 2)]
    again = [malformed_call(Random(f"{SEED} {number}"), known) for number in range(1, 401, 2)]
    assert made == again
    assert {verb.split()[0] for verb in known} <= {each.arguments[0] for each in made}
