"""The state of the dense parameters on its way to workers that have rested."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from esd.services.domain.dense_roles import DenseRole
from esd.worker.training.reducer import DenseReducer


def pass_state(state: Sequence[Tensor], reducer: DenseReducer, role: DenseRole) -> None:
    """Takes part in the sums that carry the state of one worker to those that return, tensor by tensor.

    The bits travel as integers, and all workers but one give zeros. So every value arrives with its bits: a negative
    zero, a value that is not finite, and one of 8 bytes, too.

    Args:
        state: tensors of 4 or 8 bytes per value, with the same shapes in the same order on all workers. The tensors of
            a worker that returns get the values, and it waits for them; of others they stay.
        reducer: has begun the iteration.
        role: of this worker.

    Raises:
        Unavailable: another worker is lost or late.
    """
    gives, returns = role is DenseRole.GIVES, role is DenseRole.RETURNS
    reducer.wants = returns
    vectors = [_bits(values, copied=gives) for values in state]
    for bits in vectors:
        if len(bits):
            reducer.start(bits, zeros=not gives)
    if returns:
        reducer.wait()
        with torch.no_grad():
            for values, bits in zip(state, vectors, strict=True):
                values.copy_(bits.view(values.dtype).view(values.shape))


def _bits(values: Tensor, *, copied: bool) -> Tensor:
    """Returns a vector on the host with room for the bits of a tensor, int32; its bits if they are to be copied.

    A copy, because a forward pass may change a buffer while the vector is on its way.
    """
    room = torch.empty(values.shape, dtype=values.dtype)
    if copied:
        room.copy_(values.detach())
    return room.view(-1).view(torch.int32)
