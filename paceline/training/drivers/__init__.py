"""Drivers of distributed runs: processes on this machine, actors on a Ray cluster, and divided networks."""
