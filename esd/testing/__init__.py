"""Tests for training loops of one's own: `esd.testing.conformance`."""

from __future__ import annotations

from esd.services.runtime.extras import require_torch

require_torch("esd.testing")

from esd.testing.conformance import Result, conformance  # noqa: E402 - imports torch
from esd.testing.job import JOB  # noqa: E402

__all__ = ["JOB", "Result", "conformance"]
