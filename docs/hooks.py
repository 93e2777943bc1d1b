"""Hooks of mkdocs: the reference of the command line is generated from the commands themselves."""

from __future__ import annotations

import re
from typing import Any

MARK = "<!-- commands -->"
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:examples|paceline|tests|benchmarks|CONTRIBUTING|CHANGELOG)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    if MARK in markdown:
        markdown = markdown.replace(MARK, commands())
    return OUTSIDE.sub(r"\1", markdown)  # files outside docs/ are not part of the site: named, not linked


def commands() -> str:
    """Every command with its arguments and options, as Markdown."""
    from typer.main import get_command

    from paceline.cli import make_app

    return "\n".join(_command(name, command) for name, command in _members(get_command(make_app())))


def _members(group: Any) -> list[tuple[str, Any]]:
    return sorted(group.commands.items())


def _command(name: str, command: Any) -> str:
    if hasattr(command, "commands"):
        return "\n".join(_command(f"{name} {each}", below) for each, below in _members(command))
    context = command.context_class(command, info_name=f"paceline {name}")
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [f"| `{_cell(what)}` | {_cell(means)} |" for what, means in filter(None, records)]
    table = ["| argument or option | meaning |", "|---|---|", *rows]
    usage = ["```text", command.get_usage(context), "```"]
    return "\n".join(
        [f"## `paceline {name}`", "", command.help or "", "", *usage, "", *table, "", command.epilog or "", ""]
    )


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
