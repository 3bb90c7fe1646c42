"""The use of a worker's copy of the dense parameters in an iteration: it is trained, or the worker rests."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class DenseRole(IntEnum):
    """The part of one worker in the sum of the dense gradients, and in the return of workers that have rested.

    A worker that rests sends no gradients and gets no sums, so its copy of the parameters stays behind. It returns in
    the first iteration that gives it samples: one worker whose copy is the newest gives it the parameters as they are
    before that iteration, with the state of their optimizer and the buffers that change. All workers take part in the
    sums that carry this state, as in every sum, so each is told.
    """

    TRAINS = 0  # gets the sums, and trains its copy
    RESTS = 1  # gets no sums
    GIVES = 2  # as TRAINS, and gives the state before the iteration to the workers that return
    RETURNS = 3  # gets this state first, and then is as TRAINS
    TRAINS_ON = 4  # as TRAINS, while another worker returns
    RESTS_ON = 5  # as RESTS, while another worker returns

    @property
    def rests(self) -> bool:
        """Whether the worker gets no sums of gradients."""
        return self in (DenseRole.RESTS, DenseRole.RESTS_ON)

    @property
    def sees_return(self) -> bool:
        """Whether a worker returns in the iteration, this one or another."""
        return self >= DenseRole.GIVES


_RESTS = np.array([role.rests for role in DenseRole])


def resting(roles: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Returns which workers rest, bool [n], from their roles, uint32 [n] of DenseRole."""
    return _RESTS[roles]
