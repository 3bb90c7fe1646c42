"""How a worker joins the sums of its epoch, by the way that its job has chosen (`--dense`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import torch

from esd.services.domain.dense_sums import AllReduce, DenseSum, Every, LowRank, ServerSum
from esd.services.domain.plans import Membership
from esd.services.runtime.leavable_thread import LeavableThread
from esd.worker.service.parameter_servers import ParameterServers
from esd.worker.service.ring_link import RingLink
from esd.worker.training.all_reduce import GroupStore, RingReducer, join_group
from esd.worker.training.reducer import Alone, DenseReducer, Staged
from esd.worker.training.server_sum import ServerReducer


@dataclass(frozen=True, slots=True)
class Meeting:
    """The means by which a worker meets the other members of its epoch.

    Attributes:
        membership: of the epoch.
        servers: the parameter servers of the job.
        store: through which members exchange addresses.
        host: at which the other workers reach this one.
        device: of the model.
        patience: seconds to wait for the others, here and in every sum.
        link: that a ring of workers shares.
        thread: for calls that block.
    """

    membership: Membership
    servers: ParameterServers
    store: GroupStore
    host: str
    device: torch.device
    patience: float
    link: RingLink
    thread: LeavableThread


async def join_sums(meeting: Meeting) -> DenseReducer:
    """Meets the other members; returns when all have come.

    Raises:
        Unavailable: not all members came in time.
        StaleEpoch: the epoch is over.
    """
    if len(meeting.membership.members) == 1:
        return Alone()
    reducer = await _JOINS[type(meeting.membership.job.dense_sum)](meeting)
    return reducer if meeting.device.type == "cpu" else Staged(reducer)


async def _join_ring(meeting: Meeting) -> RingReducer:
    join = partial(join_group, meeting.membership, meeting.store, meeting.host, meeting.patience, meeting.link)
    return await asyncio.wrap_future(meeting.thread.submit(join))


async def _join_servers(meeting: Meeting) -> ServerReducer:
    sums = await meeting.servers.join_sums(meeting.membership.members, meeting.patience)
    return ServerReducer(sums)


_JOINS: dict[type[DenseSum], Callable[[Meeting], Awaitable[DenseReducer]]] = {
    AllReduce: _join_ring,
    ServerSum: _join_servers,
    LowRank: _join_servers,
    Every: _join_servers,
}
