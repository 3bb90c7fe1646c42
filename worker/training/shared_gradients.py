"""The gradients of replicated rows, which all workers sum as they do those of the dense parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from esd.services.domain.plans import UsedRows
from esd.services.domain.tables import TableSpec
from esd.worker.training.all_reduce import DenseReducer


class SharedGradients:
    """Gradients of the replicated rows of one iteration, of all tables in one flat vector, so that one sum does.

    All workers train the same replicated rows, in the order of their ids, so the vector has one layout everywhere. Each
    begins with its own gradients, zeros for what its samples do not use.

    Args:
        used: by table, the rows that are trained.
        tables: of the job.
        device: where training runs.

    Attributes:
        of_tables: by table, float32 [h, D]: views of the vector; after the sum has ended, sums over all workers.
    """

    def __init__(self, used: Sequence[UsedRows], tables: Sequence[TableSpec], device: torch.device) -> None:
        shapes = [(len(rows.reduced()), table.dimension) for rows, table in zip(used, tables, strict=True)]
        sizes = [rows * dimension for rows, dimension in shapes]
        self._flat = torch.zeros(sum(sizes), device=device)
        parts = torch.split(self._flat, sizes)
        self.of_tables = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    @property
    def floats(self) -> int:
        """How many values are summed."""
        return len(self._flat)

    def start(self, reducer: DenseReducer) -> None:
        """Begins the sum, if there is anything to sum; `reducer.wait` ends it.

        Raises:
            Unavailable: a worker is lost.
        """
        if self.floats:
            reducer.start(self._flat)
