"""Dispatch decisions, pure: a batch goes in, an assignment and one plan per worker come out."""
