"""Real services side by side, in turns: iterations per second, processor time by process and thread, bytes, bounds.

`esd bench e2e` prints the figures; docs/benchmarks/system.md shows them.
"""
