"""How records show themselves: a small table in a notebook and as text, and rows as a pandas DataFrame."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError
from paceline.formatting import duration, number
from paceline.held_objects import shown_name

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

MOST_ROWS = 60


class NotebookRecord:
    """A record that shows itself as a line of facts and a table; a subclass says what is in them."""

    def facts(self) -> Mapping[str, Any]:
        """What the record says in a line, by name."""
        return {}

    def table(self) -> Sequence[Mapping[str, Any]]:
        """Its rows: epochs of a run, layers of a measurement, and so on."""
        return ()

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a DataFrame; without rows, one of the facts."""
        return to_pandas(self.table() or [self.facts()])

    def _repr_html_(self) -> str:
        return html_of(type(self).__name__, self.facts(), self.table())

    def __str__(self) -> str:
        return facts_and_rows(type(self).__name__, self.facts(), self.table())

    def __repr__(self) -> str:
        """One line: a record may hold thousands of numbers."""
        known = {name: value for name, value in self.facts().items() if not _missing(value)}
        facts = ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v!r}" for k, v in known.items())
        return f"<{type(self).__name__} {facts}>"


def to_pandas(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """The rows as a DataFrame."""
    try:
        import pandas
    except ImportError:
        raise PacelineError("to_pandas needs pandas: pip install paceline[pandas]") from None
    return pandas.DataFrame([dict(row) for row in rows])


def html_of(title: str, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """A caption, a line of facts, and a table of rows, of which the first 60 are shown."""
    shown = {_heading(name): _written(name, value) for name, value in facts.items() if not _missing(value)}
    told = ", ".join(f"{html.escape(name)} <b>{html.escape(value)}</b>" for name, value in shown.items())
    parts = [f"<p><b>{html.escape(title)}</b>{': ' if told else ''}{told}</p>"]
    if rows:
        names, *lines = _cells(rows)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
        header = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        parts.append(f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>")
        if len(rows) > MOST_ROWS:
            parts.append(f"<p>{len(rows) - MOST_ROWS:,} more rows</p>")
    return "".join(parts)


def facts_and_rows(title: str, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """The same as lines of text."""
    shown = {_heading(name): _written(name, value) for name, value in facts.items() if not _missing(value)}
    told = ", ".join(f"{name} {value}" for name, value in shown.items())
    lines = [f"{title}{': ' if told else ''}{told}"]
    if rows:
        cells = _cells(rows)
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        is_text = [isinstance(rows[0][name], str) for name in _columns(rows)]
        for line in cells:
            placed = zip(line, widths, is_text, strict=True)
            lines.append("  ".join(c.ljust(width) if left else c.rjust(width) for c, width, left in placed).rstrip())
        if len(rows) > MOST_ROWS:
            lines.append(f"{len(rows) - MOST_ROWS:,} more rows")
    return "\n".join(lines)


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Headings, and the first rows as text."""
    names = _columns(rows)
    return [[_heading(name) for name in names], *([_written(n, row[n]) for n in names] for row in rows[:MOST_ROWS])]


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns with a value in any of the rows, such as no `test_metric` where there is none."""
    return [name for name in rows[0] if not all(_missing(row[name]) for row in rows)]


def _missing(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _is_time(name: str) -> bool:
    return name.endswith("_s") and not name.endswith("_per_s")


def _heading(name: str) -> str:
    """Times are shown with their unit, so their heading has none."""
    return name.removesuffix("_s") if _is_time(name) else name


def _written(name: str, value: Any) -> str:
    if isinstance(value, float):
        if _is_time(name):
            return duration(value)
        return number(value) if abs(value) >= 1000 or not math.isfinite(value) else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return shown_name(str(value))
