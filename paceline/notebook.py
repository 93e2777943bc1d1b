"""How records show themselves: a small table in a notebook, and rows as a pandas DataFrame."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

MOST_ROWS = 60


def to_pandas(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """The rows as a DataFrame."""
    try:
        import pandas
    except ImportError:
        raise PacelineError("to_pandas needs pandas: pip install paceline[pandas]") from None
    return pandas.DataFrame([dict(row) for row in rows])


def html_of(title: str, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """A caption, a line of facts, and a table of rows, of which the first 60 are shown."""
    told = ", ".join(f"{html.escape(name)} <b>{_cell(value)}</b>" for name, value in facts.items())
    parts = [f"<p><b>{html.escape(title)}</b>{': ' if told else ''}{told}</p>"]
    if rows:
        header = "".join(f"<th>{html.escape(str(name))}</th>" for name in rows[0])
        body = "".join(
            f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row.values())}</tr>" for row in rows[:MOST_ROWS]
        )
        parts.append(f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>")
        if len(rows) > MOST_ROWS:
            parts.append(f"<p>{len(rows) - MOST_ROWS:,} more rows</p>")
    return "".join(parts)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if math.isfinite(value) else "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return html.escape(str(value))


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.3f} ms"
