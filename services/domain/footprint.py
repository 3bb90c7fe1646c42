"""What training takes of a machine: memory and time, as measured there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the worker of a job takes, as straight lines over its cached rows and its samples per iteration.

    Attributes:
        fixed_bytes: the process, the model and its optimizer, without rows and samples.
        row_bytes: of a cached row of the first table, with its optimizer state and what is kept of it (SCARS' d).
        sample_bytes: of a sample in an iteration: its rows on their way, activations and gradients (SCARS' a).
        step_seconds: computation of an iteration, however few samples it has.
        sample_seconds: computation of each of its samples.
        dense_bytes: the dense gradients, which the workers sum in every iteration.
    """

    fixed_bytes: float
    row_bytes: float
    sample_bytes: float
    step_seconds: float
    sample_seconds: float
    dense_bytes: int

    def cache_rows(self, memory: float, samples: int) -> int:
        """Returns how many rows fit `memory` bytes beside an iteration's samples (SCARS eq. 7); may be negative."""
        return int((memory - self.fixed_bytes - samples * self.sample_bytes) // self.row_bytes)
