"""Malformed calls and damaged files, drawn from a seed: each ends in one line, and leaves nothing behind."""
