"""One case: a command line, the files it finds, and whether it must be refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Case:
    arguments: tuple[str, ...]
    must_fail: bool
    """False: it may be right as it is, and then succeeds."""
    copies: dict[str, str] = field(default_factory=dict)
    """What is copied into the working directory: name there, name among the material."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What is written over it."""
    links: dict[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()

    def prepare(self, directory: Path, material: Path) -> None:
        import shutil

        directory.mkdir()
        for name, source in self.copies.items():
            if (material / source).is_dir():
                shutil.copytree(material / source, directory / name)
            else:
                shutil.copy(material / source, directory / name)
        for name in self.folders:
            (directory / name).mkdir()
        for name, content in self.files.items():
            (directory / name).write_bytes(content)
        for name, target in self.links.items():
            (directory / name).symlink_to(target)

    def __str__(self) -> str:
        words = " ".join(word if len(word) < 60 else f"{word[:20]}...({len(word)})" for word in self.arguments)
        contents = {name: content[:300] for name, content in self.files.items()}
        return f"paceline {words}   files: {contents or '-'} links: {self.links or '-'} must fail: {self.must_fail}"
