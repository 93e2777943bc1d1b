"""The built-in exchanges, one per file."""
