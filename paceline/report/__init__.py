"""Turns records into something to look at."""
