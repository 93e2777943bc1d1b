"""Every verb explains itself and gives an example that is a command of this program."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

VERBS = [
    ["train"], ["calibrate"], ["predict"], ["reproduce"], ["plan"], ["measure"], ["simulate"], ["verify"],
    ["compare"], ["report"], ["evaluate"], ["models"], ["catalogue"], ["doctor"], ["demo"], ["data", "list"],
    ["data", "fetch"], ["data", "path"],
]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_has_an_example(paceline, verb):
    result = paceline(*verb, "--help")
    assert result.code == 0 and result.err == ""
    example = next(line for line in result.out.splitlines() if "Example: " in line).partition("Example: ")[2]
    assert shlex.split(example)[: len(verb) + 1] == ["paceline", *verb]
    assert "--json" in result.out


def test_the_list_of_verbs_is_complete(paceline):
    result = paceline("--help")
    commands = result.out.partition("Commands:\n")[2].splitlines()
    assert {line.split()[0] for line in commands if line.strip()} == {verb[0] for verb in VERBS}
    commands = paceline("data", "--help").out.partition("Commands:\n")[2].splitlines()
    assert {line.split()[0] for line in commands if line.strip()} == {v[1] for v in VERBS if v[0] == "data"}


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_no_words_at_all_show_the_help(paceline, arguments):
    result = paceline(*arguments)
    assert result.code == 0 and "Commands:" in result.out and result.err == ""


def test_the_module_is_the_program():
    done = subprocess.run([sys.executable, "-m", "paceline", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "Commands:" in done.stdout and done.stderr == ""


def test_the_module_ends_with_the_exit_code():
    done = subprocess.run([sys.executable, "-m", "paceline", "train", "lenet6"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("paceline: no network 'lenet6': did you mean lenet5")
