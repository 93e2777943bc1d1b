"""Results: records found and loaded, one row and one label per run, one table, one way to write units."""

from __future__ import annotations

from paceline.results.table import ResultsTable, collect

__all__ = ["ResultsTable", "collect"]
