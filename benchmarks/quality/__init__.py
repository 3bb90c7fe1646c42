"""How good the models are that ESD trains, beside the same ones in plain torch: `python -m benchmarks.quality`."""
