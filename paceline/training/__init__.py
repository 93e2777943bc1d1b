"""Runs the training and keeps what came of it."""
