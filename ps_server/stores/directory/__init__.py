"""Rows in memory whose checkpoints are in a directory."""
