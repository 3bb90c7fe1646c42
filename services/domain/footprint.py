"""The memory and time that training takes on a machine, as measured there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Footprint:
    """The needs of a worker, as linear functions of its cached rows and its samples per iteration.

    Attributes:
        fixed_bytes: memory of the process, the model and its optimizer, without rows and samples.
        row_bytes: memory of a cached row of the first table, with optimizer state and bookkeeping (SCARS' d).
        sample_bytes: memory of a sample in an iteration: its rows in flight, activations and gradients (SCARS' a).
        step_seconds: computing time of an iteration, independent of its samples.
        sample_seconds: computing time per sample.
        dense_bytes: bytes of the dense gradients, which the workers sum in every iteration.
    """

    fixed_bytes: float
    row_bytes: float
    sample_bytes: float
    step_seconds: float
    sample_seconds: float
    dense_bytes: int

    def cache_rows(self, memory: float, samples: int) -> int:
        """Returns how many rows fit `memory` bytes in addition to the samples (SCARS eq. 7); may be negative."""
        return int((memory - self.fixed_bytes - samples * self.sample_bytes) // self.row_bytes)
