"""Rows and gradients that travel between workers and the parameter server, as columns, and the checks they must pass.

Workers build these blocks, the wire carries them, and the parameter server checks and stores them. Workers may trust
their own blocks; the server calls `validate` on those that it receives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.tables import TableSpec
from esd.services.domain.versions import MAX_VERSION, trainings
from esd.services.domain.worker_set import MAX_WORKERS, absent, set_at

Part = slice | NDArray[np.bool_] | NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """r rows of a table, each with its version.

    Attributes:
        ids: uint64 [r], distinct.
        versions: int64 [r].
        rows: float32 [r, W], the D values of each row and then its optimizer state; float32 [.., W] with `slots`.
        slots: uint32 [r], the place of each row in `rows`, for a block that lies in a larger table, such as a worker's
            cache; None: `rows` has the rows of the block in order. Received blocks have none.
    """

    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]
    rows: NDArray[np.float32]
    slots: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: Part) -> Self:
        return type(self)(self.ids[part], self.versions[part], *_part(self.rows, self.slots, part))

    def pieces(self, size: int) -> Iterator[Self]:
        """Yields the block in pieces of at most `size` rows, in order."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def validate(self, spec: TableSpec) -> None:
        """Raises InvalidArgument unless the table can store the block, which has no slots."""
        check_columns(self.ids, versions=self.versions)
        check_distinct(self.ids)
        check_versions(self.ids, self.versions, lowest=1)
        _check_floats(self.ids, self.rows, spec.row_width, f"rows of table {spec.name!r}")


@dataclass(frozen=True, slots=True)
class GradientBlock:
    """r partial gradients of one worker, for rows that several workers trained in the same iteration.

    Attributes:
        ids: uint64 [r], distinct.
        targets: int64 [r], the version that the sum of all contributions will make.
        contributors: uint64 [r], bit w is set when worker slot w contributes; in a job of more than 64 workers
            uint64 [r, 2], the lower word first.
        steps: uint32 [r], optimizer step (iteration + 1) that produced the gradient.
        rates: float32 [r], learning rate of that step.
        gradients: float32 [r, D]; float32 [.., D or more] with `slots`, a gradient being the first D floats.
        worker: slot of the sender, 0..127.
        slots: uint32 [r], the place of each gradient in `gradients`; None: in order, as for `RowBlock`.
    """

    ids: NDArray[np.uint64]
    targets: NDArray[np.int64]
    contributors: NDArray[np.uint64]
    steps: NDArray[np.uint32]
    rates: NDArray[np.float32]
    gradients: NDArray[np.float32]
    worker: int
    slots: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: Part) -> Self:
        gradients, slots = _part(self.gradients, self.slots, part)
        return type(self)(
            self.ids[part],
            self.targets[part],
            self.contributors[part],
            self.steps[part],
            self.rates[part],
            gradients,
            self.worker,
            slots,
        )

    def validate(self, spec: TableSpec) -> None:
        """Raises InvalidArgument unless the table can store the block, which has no slots."""
        check_columns(
            self.ids,
            target_versions=self.targets,
            contributors=self.contributors,
            steps=self.steps,
            rates=self.rates,
        )
        check_distinct(self.ids)
        check_versions(self.ids, self.targets, lowest=1)
        _check_floats(self.ids, self.gradients, spec.dimension, f"gradients of table {spec.name!r}")
        if not 0 <= self.worker < MAX_WORKERS:
            raise InvalidArgument(f"worker is {self.worker}, slots are 0..{MAX_WORKERS - 1}")
        missing = absent(self.contributors, self.worker)
        if missing.any():
            at = int(np.argmax(missing))
            workers = set_at(self.contributors, at)
            raise InvalidArgument(f"worker {self.worker} is not among the contributors {workers} of row {self.ids[at]}")
        if len(self) and self.steps.min() < 1:
            at = int(np.argmin(self.steps))
            raise InvalidArgument(f"step of row {self.ids[at]} is {self.steps[at]}, optimizer steps count from 1")
        wrong = ~(np.isfinite(self.rates) & (self.rates >= 0))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InvalidArgument(f"rate of row {self.ids[at]} is {self.rates[at]}, it must be at least 0 and finite")


def check_columns(ids: NDArray[np.uint64], **columns: NDArray[np.generic]) -> None:
    """Raises InvalidArgument unless every column has one entry per id."""
    for name, column in columns.items():
        if len(column) != len(ids):
            raise InvalidArgument(f"{len(column)} {name} given for {len(ids)} ids")


def check_distinct(ids: NDArray[np.uint64]) -> None:
    """Raises InvalidArgument when an id occurs twice."""
    ordered = np.sort(ids)
    twice = ordered[1:] == ordered[:-1]
    if twice.any():
        raise InvalidArgument(f"row {ordered[int(np.argmax(twice))]} is named twice, ids must be distinct")


def check_versions(ids: NDArray[np.uint64], versions: NDArray[np.int64], lowest: int) -> None:
    """Raises InvalidArgument when a version is outside 0..MAX_VERSION or names less than `lowest` trainings."""
    wrong = (versions < 0) | (trainings(versions) < lowest) | (versions > MAX_VERSION)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InvalidArgument(
            f"version of row {ids[at]} is {versions[at]}, it must be in {lowest}..{MAX_VERSION} and "
            f"name at least {lowest} trainings in its low 30 bits"
        )


def _part(
    table: NDArray[np.float32], slots: NDArray[np.uint32] | None, part: Part
) -> tuple[NDArray[np.float32], NDArray[np.uint32] | None]:
    """Returns the table and the slots of a part of a block; only a block without slots is cut."""
    return (table[part], None) if slots is None else (table, slots[part])


def _check_floats(ids: NDArray[np.uint64], values: NDArray[np.float32], width: int, what: str) -> None:
    """Raises InvalidArgument unless `values` is [len(ids), width] and finite."""
    if values.shape != (len(ids), width):
        raise InvalidArgument(f"{what} have shape {values.shape}, {(len(ids), width)} is needed")
    if not np.isfinite(values).all():
        at = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InvalidArgument(f"{what} are not finite: row {ids[at]} holds NaN or infinity")
