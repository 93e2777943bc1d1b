"""How training is distributed: strategies as data, the coordinator that runs them, the mathematics of payloads."""
