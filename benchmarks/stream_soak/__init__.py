"""Breaks streams on purpose, for long, and watches memory: `python -m benchmarks.stream_soak`."""
