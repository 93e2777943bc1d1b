"""Any trace as a file for Perfetto or chrome://tracing: one row for each who."""

from __future__ import annotations

import json

from paceline.trace import Trace


def chrome_trace(trace: Trace) -> str:
    rows = {who: number for number, who in enumerate(dict.fromkeys(span.who for span in trace.spans))}
    events: list[dict[str, object]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": who}}
        for who, number in rows.items()
    ]
    events += [
        {
            "name": span.what,
            "cat": span.what.split(" ")[0],
            "ph": "X",
            "pid": 0,
            "tid": rows[span.who],
            "ts": span.start_s * 1e6,
            "dur": span.duration_s * 1e6,
            **({"args": {"note": span.note}} if span.note else {}),
        }
        for span in trace.spans
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
