"""Attacks that peers without credentials can make on a job and on the memory of its services."""
