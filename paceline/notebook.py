"""How records show themselves: a small table in a notebook and as text, and rows as a pandas DataFrame."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError

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
        facts = ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v!r}" for k, v in self.facts().items())
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


def facts_and_rows(title: str, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """The same as lines of text."""
    told = ", ".join(f"{name} {_written(value)}" for name, value in facts.items())
    lines = [f"{title}{': ' if told else ''}{told}"]
    if rows:
        cells = [list(map(str, rows[0])), *([_written(value) for value in row.values()] for row in rows[:MOST_ROWS])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        is_text = [isinstance(value, str) for value in rows[0].values()]
        for line in cells:
            placed = zip(line, widths, is_text, strict=True)
            lines.append("  ".join(c.ljust(width) if left else c.rjust(width) for c, width, left in placed).rstrip())
        if len(rows) > MOST_ROWS:
            lines.append(f"{len(rows) - MOST_ROWS:,} more rows")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return html.escape(_written(value))


def _written(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if math.isfinite(value) else "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
