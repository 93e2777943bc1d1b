"""Ratios against peers and against ourselves, side by side in one process; see docs/benchmarks.md."""
