"""The list of mutants: one line of the code for each promise, how to break it, and which tests notice."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    promise: str
    file: str
    find: str
    replace: str
    tests: list[str]

    def apply(self, root: Path) -> None:
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        count = text.count(self.find)
        assert count == 1, f"{self.file} has {count} times what the mutant for {self.promise!r} replaces"
        path.write_text(text.replace(self.find, self.replace), encoding="utf-8")


def mutants() -> list[Mutant]:
    text = Path(__file__).with_name("mutants.toml").read_text(encoding="utf-8")
    return [Mutant(**entry) for entry in tomllib.loads(text)["mutant"]]
