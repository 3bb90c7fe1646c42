"""The figures that README and docs quote: docs/figures.toml says where each stands and which command gives it.

`make figures` runs the commands and writes the figures into the pages; `make figures-check` only compares.
"""
