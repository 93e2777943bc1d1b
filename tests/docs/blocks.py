"""Code blocks of README and documentation: where they are, and what a line below one says about running it.

A block that the tests do not run has a visible line directly below it that says why:

    *(not run by the tests: needs a GPU)*
    *(run by `make soak`: takes a minute)*
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXECUTED = ("python", "console", "bash", "toml")
SHOWN = ("text", "json", "mermaid")

_FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"\s*\*\((not run by the tests|run by `make soak`): (\S[^)]*)\)\*")
_NAME = re.compile(r"# (\S+\.(?:py|toml))\b")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    not_run: str | None = None
    soak: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """A block whose first line is a comment with a file's name is saved under that name."""
        named = _NAME.match(self.text)
        return named.group(1) if named else None


def pages() -> list[str]:
    """Every page with code for users, relative to the repository."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def blocks_of(page: str) -> list[Block]:
    return parse((ROOT / page).read_text(encoding="utf-8"), page)


def parse(text: str, page: str = "page") -> list[Block]:
    found = []
    for fence in _FENCE.finditer(text):
        indent, language, body = fence.groups()
        mark = _MARK.match(text, fence.end())
        kind, reason = mark.groups() if mark else (None, None)
        found.append(
            Block(
                page,
                text.count("\n", 0, fence.start()) + 1,
                language,
                re.sub(f"^{indent}", "", body, flags=re.MULTILINE),
                not_run=reason if kind == "not run by the tests" else None,
                soak=reason if kind == "run by `make soak`" else None,
            )
        )
    return found


def unfenced_commands(text: str) -> list[str]:
    """Commands in indented blocks, which no test would find."""
    outside = _FENCE.sub("", text)
    return re.findall(r"^ {4,}(?:\$ |paceline |python |pip |make |import |from \w+ import ).*$", outside, re.MULTILINE)
