"""The papers' figures and tables that a simulator can answer: `python -m benchmarks.papers`."""
