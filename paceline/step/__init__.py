"""Turns a workload into a network, a feeder and the fastest correct step."""
