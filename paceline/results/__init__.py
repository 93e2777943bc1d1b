"""Results: records found and loaded, one row and one label per run, one table, one way to write units."""
