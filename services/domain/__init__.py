"""The vocabulary of the system, pure: standard library and numpy only."""
