"""Attempts to break real runs: faults, malformed messages, hostile strangers and long lives."""
