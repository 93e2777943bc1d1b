"""Experiments: grids, random searches and repetitions of runs, executed so that they survive interruption."""
