"""TensorBoard event files. Every record is written to disk immediately."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError
from paceline.output_directory import writable

try:
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
    from tensorboard.summary.writer.record_writer import RecordWriter
except ImportError:
    raise PacelineError("`tensorboard` needs TensorBoard: pip install paceline[tensorboard]") from None

FILES = "events.out.tfevents.*"
LARGEST = 3.4028234e38  # scalars are stored as float32


class EventFile:
    """A new file in `directory`."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self.place, self.clock = f"`tensorboard={str(directory)!r}`", clock
        with writable(self.place):
            directory.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads the files of a directory in the order of their names.
            self._file = (directory / FILES.replace("*", f"{time.time_ns()}.paceline")).open("xb", buffering=0)
        self._add(file_version="brain.Event:2")

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._file.close()

    def begin_at(self, step: int) -> None:
        """Discards the points of earlier files from this step on, so that repeated steps are drawn once."""
        self._add(step=step, session_log=SessionLog(status=SessionLog.START))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a point to each curve; non-finite values are left out."""
        drawn = {tag: value for tag, value in values.items() if abs(value) <= LARGEST}
        points = [Summary.Value(tag=tag, simple_value=value) for tag, value in drawn.items()]
        self._add(step=step, summary=Summary(value=points))

    def hyper_parameters(self, values: Mapping[str, Any], group: str = "") -> None:
        """Shown beside the results; runs of one `group` are repetitions of each other."""
        start = SessionStartInfo(group_name=group, start_time_secs=self.clock())
        for name, value in values.items():
            if isinstance(value, bool):
                start.hparams[name].bool_value = value
            elif isinstance(value, int | float):
                start.hparams[name].number_value = value
            else:
                text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
                start.hparams[name].string_value = text.encode(errors="backslashreplace").decode()
        self._add_hparams("session_start_info", start)

    def ended(self, well: bool) -> None:
        status = Status.STATUS_SUCCESS if well else Status.STATUS_FAILURE
        self._add_hparams("session_end_info", SessionEndInfo(status=status, end_time_secs=self.clock()))

    def _add_hparams(self, name: str, info: SessionStartInfo | SessionEndInfo) -> None:
        content = HParamsPluginData(**{name: info}).SerializeToString()
        plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=content)
        value = Summary.Value(tag=f"_hparams_/{name}", metadata=SummaryMetadata(plugin_data=plugin))
        self._add(summary=Summary(value=[value]))

    def _add(self, **fields: Any) -> None:
        with writable(self.place):
            RecordWriter(self._file).write(Event(wall_time=self.clock(), **fields).SerializeToString())
