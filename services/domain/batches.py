"""Training samples, as columns, and the pieces of a sample stream that are logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from services.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """k samples: F embedding row ids, d dense features and one label each.

    Attributes:
        ids: uint64 [k, F], one embedding row id per field.
        dense: float32 [k, d].
        labels: float32 [k], 0 or 1.
    """

    ids: NDArray[np.uint64]
    dense: NDArray[np.float32]
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Self:
        return type(self)(self.ids[rows], self.dense[rows], self.labels[rows])

    @classmethod
    def concatenate(cls, batches: list[Self]) -> Self:
        """Joins batches of the same shape, in order."""
        return cls(
            np.concatenate([b.ids for b in batches]),
            np.concatenate([b.dense for b in batches]),
            np.concatenate([b.labels for b in batches]),
        )

    def validate(self, fields: int, dense_features: int) -> None:
        """Raises InvalidArgument unless the batch has the job's shape and finite numbers."""
        k = len(self.labels)
        if self.ids.shape != (k, fields):
            raise InvalidArgument(f"ids have shape {self.ids.shape}, the job needs ({k}, {fields})")
        if self.dense.shape != (k, dense_features):
            raise InvalidArgument(
                f"dense features have shape {self.dense.shape}, the job needs ({k}, {dense_features})"
            )
        for name, values in (("dense", self.dense), ("labels", self.labels)):
            if not np.isfinite(values).all():
                row = int(np.argwhere(~np.isfinite(values))[0][0])
                raise InvalidArgument(f"{name} of sample {row} is not finite")
        if not ((self.labels == 0) | (self.labels == 1)).all():
            row = int(np.argwhere((self.labels != 0) & (self.labels != 1))[0][0])
            raise InvalidArgument(f"label of sample {row} is {self.labels[row]}, it must be 0 or 1")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log of a job's sample stream, which the first parameter server keeps for the dispatcher.

    Attributes:
        position: samples of the stream before it.
        samples: k; 0 marks the end of the stream.
        batch: the k samples as an encoded SampleBatch message, which the parameter server does not look into.
    """

    position: int
    samples: int
    batch: bytes = b""

    @property
    def end(self) -> int:
        """Samples of the stream before the entry that follows."""
        return self.position + self.samples

    @property
    def closes(self) -> bool:
        """Whether nothing follows it."""
        return self.samples == 0
