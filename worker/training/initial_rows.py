"""The rows of ids that are not admitted yet: a worker makes them itself, and trains none of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from esd.native.rows import initialise
from esd.services.domain.plans import InitialRows
from esd.services.domain.tables import TableSpec


def with_initial_rows(rows: Tensor, initial: InitialRows | None, table: TableSpec) -> Tensor:
    """Returns the rows of all ids of a plan's samples in one table, in the order of the samples.

    The initial values are those that the parameter server would give a new row, bit for bit.

    Args:
        rows: float32 [N, D], of the ids that are trained.
        initial: the other ids; None: there are none.
        table: the table.

    Returns:
        float32 [N + M, D]; without other ids the rows themselves.
    """
    if initial is None:
        return rows
    values = np.zeros((len(initial.ids), table.dimension), np.float32)
    initialise(initial.ids, np.zeros(len(initial.ids), np.int64), values, table.dimension, table.seed, table.init_scale)
    among = torch.from_numpy(initial.among).to(rows.device)
    whole = rows.new_empty(len(initial.among), table.dimension)
    whole[~among] = rows
    whole[among] = torch.from_numpy(values[initial.inverse]).to(rows.device)
    return whole


def without_initial_rows(gradients: Tensor, initial: InitialRows | None) -> Tensor:
    """Picks the gradients of the trained ids, float32 [N, D], out of the gradients of all ids, [N + M, D]."""
    if initial is None:
        return gradients
    return gradients[torch.from_numpy(~initial.among).to(gradients.device)]
