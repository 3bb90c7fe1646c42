"""Breaks streams on purpose, for long, and watches memory: `python -m hardening.stream_soak`."""
