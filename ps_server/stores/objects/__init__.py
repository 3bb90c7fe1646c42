"""Rows in memory whose checkpoints are in an object store."""
