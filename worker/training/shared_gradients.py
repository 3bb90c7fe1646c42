"""The gradients of replicated rows, which all workers sum together with the gradients of the dense parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from esd.services.domain.plans import UsedRows
from esd.services.domain.tables import TableSpec
from esd.worker.training.reducer import DenseReducer


class SharedGradients:
    """The gradients of one iteration's replicated rows, of all tables in one flat vector, so that one sum suffices.

    All workers train the same replicated rows, in the order of their ids, so the vector has the same layout on each of
    them. Each begins with its own gradients, and with zeros for rows that its samples do not use.

    Args:
        used: by table, the rows of the iteration.
        tables: tables of the job.
        device: the device of training.

    Attributes:
        of_tables: by table, float32 [h, D]: views of the vector; after the sum, the sums over all workers.
    """

    def __init__(self, used: Sequence[UsedRows], tables: Sequence[TableSpec], device: torch.device) -> None:
        shapes = [(len(rows.reduced()), table.dimension) for rows, table in zip(used, tables, strict=True)]
        sizes = [rows * dimension for rows, dimension in shapes]
        self._flat = torch.zeros(sum(sizes), device=device)
        parts = torch.split(self._flat, sizes)
        self.of_tables = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    @property
    def floats(self) -> int:
        """Number of values to sum."""
        return len(self._flat)

    def start(self, reducer: DenseReducer, *, zeros: bool = False) -> None:
        """Begins the sum, unless it is empty; `reducer.wait` ends it.

        Args:
            reducer: sums over the workers of the epoch.
            zeros: whether this worker has no samples.

        Raises:
            Unavailable: a worker is lost.
        """
        if self.floats:
            reducer.start(self._flat, zeros=zeros)
