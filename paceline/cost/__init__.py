"""Predicts training time: models of compute and communication, fitted and in closed form."""
