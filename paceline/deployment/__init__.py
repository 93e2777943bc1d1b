"""Turns a plan into the file that starts the cluster it recommends: one file per kind of cluster."""
