"""ESD beside other ways to train, on the same machines and links: `python -m benchmarks.rivals`."""
