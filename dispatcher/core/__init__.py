"""Dispatch decisions, without I/O: from a batch to an assignment and one plan per worker."""
