"""Knowledge graphs beside PyKEEN, and the bytes of negatives: `python -m benchmarks.graphs`."""
