"""Tests for training loops of one's own: `esd.testing.conformance`."""

from __future__ import annotations

from esd.testing.conformance import Result, conformance
from esd.testing.job import JOB

__all__ = ["JOB", "Result", "conformance"]
