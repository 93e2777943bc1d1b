"""A cluster in one process: an event heap, a virtual clock, and the same coordinator that drives real workers."""
