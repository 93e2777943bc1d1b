"""The layer clock in other libraries' training loops. Each file imports its library; this one imports nothing."""
