"""The built-in corrections, one paper per file."""
