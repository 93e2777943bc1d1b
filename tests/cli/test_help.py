"""Every verb explains itself and gives an example that is a command of this program."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

VERBS = [
    ["train"], ["calibrate"], ["predict"], ["reproduce"], ["advise"], ["plan"], ["deploy"], ["measure"], ["simulate"],
    ["verify"], ["compare"], ["report"], ["evaluate"], ["models"], ["catalogue"], ["doctor"], ["demo"],
    ["data", "list"], ["data", "fetch"], ["data", "path"],
]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_has_an_example(paceline, verb):
    result = paceline(*verb, "--help")
    assert result.code == 0 and result.err == ""
    example = next(line for line in result.out.splitlines() if "Example: " in line).partition("Example: ")[2]
    assert shlex.split(example)[: len(verb) + 1] == ["paceline", *verb]
    assert "--json" in result.out
    assert not re.search(r"<\w", result.out), "no types of Python such as <list[Path]>"


def test_the_list_of_verbs_is_complete(paceline):
    result = paceline("--help")
    assert commands_in(result.out) == {verb[0] for verb in VERBS}
    assert commands_in(paceline("data", "--help").out) == {v[1] for v in VERBS if v[0] == "data"}


def commands_in(text: str) -> set[str]:
    panel = text.partition("─ Commands ─")[2].partition("╰")[0]
    return {found[1] for line in panel.splitlines() if (found := re.match(r"│ ([a-z]+) ", line))}


def test_options_are_grouped_in_panels(paceline):
    text = paceline("train", "--help").out
    panels = re.findall(r"╭─ ([A-Z][a-z ]+) ─", text)
    expected = ["Data", "Optimizer", "Device", "Distribution", "Simulated cluster", "Faults and limits", "Output"]
    assert {*expected} <= {*panels} and len(panels) == len({*panels})
    distribution = text.partition("╭─ Distribution ─")[2].partition("╰")[0]
    assert "--workers" in distribution and "--batch" not in distribution
    for name in ("dropout", "softsync_n"):
        assert name in text.partition("╭─ Other settings ─")[2]


def test_out_resume_and_json_have_one_spelling(paceline):
    for verb in VERBS:
        text = " ".join(paceline(*verb, "--help").out.split())
        assert "--json FILE Write the result as JSON" in text
        for option in ("--out", "--resume"):
            if f"{option} " in text and verb not in (["report"], ["deploy"]):  # these write one file
                assert f"{option} DIR" in text, verb


def test_flags_are_shown_without_a_value_and_options_without_names_of_python_types(paceline):
    for verb in VERBS:
        options = [line for line in paceline(*verb, "--help").out.splitlines() if "  --" in line or "│ --" in line]
        assert options and not [line for line in options if "<" in line], verb


def test_the_version_is_shown(paceline):
    result = paceline("--version")
    assert result.code == 0 and re.fullmatch(r"paceline \d+\.\d+\.\d+\S*\n", result.out)


def test_a_misspelt_setting_is_answered_with_the_nearest(paceline):
    assert "did you mean dropout" in paceline("train", "mlp", "--set", "dropuot=0.1").refused()
    assert "did you mean softsync_n" in paceline("train", "mlp", "--set", "softsync-m=1").refused()
    assert "no setting 'push_every' for predict" in paceline("predict", "mlp", "--set", "push_every=3").refused()


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_no_words_at_all_show_the_help(paceline, arguments):
    result = paceline(*arguments)
    assert result.code == 0 and "─ Commands ─" in result.out and result.err == ""


def test_the_module_is_the_program():
    done = subprocess.run([sys.executable, "-m", "paceline", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "─ Commands ─" in done.stdout and done.stderr == ""


def test_the_module_ends_with_the_exit_code():
    done = subprocess.run([sys.executable, "-m", "paceline", "train", "lenet6"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("paceline: no network 'lenet6': did you mean lenet5")


def test_a_section_of_a_file_is_not_taken_for_markup(paceline):
    assert "section [quick] of the file" in " ".join(paceline("compare", "--help").out.split())
