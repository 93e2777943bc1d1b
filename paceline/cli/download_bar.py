"""A progress bar for downloads, to be passed wherever data are fetched."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.progress.stop()

    def __call__(self, what: str, done_bytes: int, all_bytes: int | None) -> None:
        if what not in self.tasks:
            self.tasks[what] = self.progress.add_task(what, total=all_bytes)
        self.progress.update(self.tasks[what], completed=done_bytes, total=all_bytes)
