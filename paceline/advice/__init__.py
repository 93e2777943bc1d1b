"""Advice for a task that is only described: a network family, its shape, and how to train it."""
