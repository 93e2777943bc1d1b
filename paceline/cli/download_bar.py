"""A progress bar for downloads, and the base of watchers that draw a bar after them."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)


class BarAfterDownloads:
    """A watcher with a bar of its own; a terminal has room for one at a time, so it starts after the downloads."""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        self.console = console
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.downloads = DownloadBar(console)

    def __enter__(self) -> Self:
        self.downloads.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.downloads.progress.stop()
        self.bar.stop()

    def start_bar(self) -> None:
        self.downloads.progress.stop()
        self.bar.start()


class DownloadBar:
    """Callable with (what, bytes so far, bytes in all or None)."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TransferSpeedColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> DownloadBar:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, what: str, done_bytes: int, all_bytes: int | None) -> None:
        if what not in self.tasks:
            self.tasks[what] = self.progress.add_task(what, total=all_bytes)
        self.progress.update(self.tasks[what], completed=done_bytes, total=all_bytes)
