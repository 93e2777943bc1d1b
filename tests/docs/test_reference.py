"""The reference names everything that users can write, and links lead somewhere."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path

import pytest

import paceline
from paceline.workload import Workload
from tests.docs.blocks import ROOT, pages

DOCS = ROOT / "docs"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_every_public_name_is_in_the_reference():
    named = re.findall(r"^::: [\w.]+\.(\w+)$", text_of("docs/reference/api.md"), re.MULTILINE)
    assert sorted(named) == sorted(paceline.__all__)


def test_every_setting_of_a_workload_is_in_the_reference():
    rows = re.findall(r"^\| (`[^|]*) \|", text_of("docs/reference/workload.md"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {field.name for field in dataclasses.fields(Workload)} - named == set()


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("docs/explanation/strategies.md", paceline.strategies),
        ("docs/reference/networks.md", paceline.models),
        ("docs/howto/reproduce.md", paceline.studies),
    ],
)
def test_everything_that_is_listed_is_described(page, names):
    missing = [each.name for each in names() if f"`{each.name}`" not in text_of(page)]
    assert missing == []


def test_every_command_is_in_the_generated_reference():
    from paceline.cli import make_app

    generated = runpy.run_path(str(DOCS / "hooks.py"))["commands"]()
    names = [command.name for command in make_app().registered_commands]
    assert len(names) > 10
    assert [name for name in names if f"## `paceline {name}`" not in generated] == []
    assert "--strategy" in generated and "Samples per step" in generated


def test_the_navigation_has_every_page():
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(path: Path) -> set[str]:
    """The ids that mkdocs gives to headings."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", pages())
def test_links_lead_to_files_and_headings_that_exist(page):
    here = (ROOT / page).parent
    broken = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", without_blocks(text_of(page))):
        if target.startswith(("http://", "https://")):
            continue
        path = (here / target).resolve() if target else ROOT / page
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            broken.append(f"{target}#{anchor}")
    assert broken == []
