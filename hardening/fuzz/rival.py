"""A dispatcher that has no part in a job, and says all the while that the job's epochs are its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from tests.support.server_client import ServerClient

_PAUSE_SECONDS = 0.05  # between its attempts, so that the job gets on

Claim = Callable[[ServerClient, int], Awaitable[object]]  # by a client that is not the job's, in an epoch

# Claims that a parameter server must refuse at any time, by name. It accepts a claim of a later epoch with
# `takes_over`, because a dispatcher takes over the job of a dead dispatcher with it.
_CLAIMS: Mapping[str, Claim] = {
    "the present epoch": lambda rival, epoch: rival.begin_epoch(epoch, takes_over=True),
    "the next epoch of a job that it has not taken over": lambda rival, epoch: rival.begin_epoch(
        epoch + 1, takes_over=False
    ),
    "the way back in the present epoch": lambda rival, epoch: rival.restore(0, epoch=epoch),
}


@asynccontextmanager
async def rival_of(job: JobSpec) -> AsyncIterator[None]:
    """Has another dispatcher claim the epochs of an open job, at its first parameter server, while the block runs.

    Raises:
        AssertionError: a claim was believed, or there was no time for any.
    """
    refused: list[str] = []
    believed: list[str] = []
    over = asyncio.Event()

    async def claim_all() -> None:
        async with ServerClient(job.parameter_servers[0], job.table) as rival:
            while not over.is_set():
                for name, claim in _CLAIMS.items():
                    try:
                        await claim(rival, (await rival.get_checkpoint()).epoch)
                    except FailedPrecondition:
                        refused.append(name)
                    else:
                        believed.append(name)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PAUSE_SECONDS):
                        await over.wait()

    claiming = asyncio.create_task(claim_all(), name="claim_all")
    try:
        yield
    finally:
        over.set()
        await claiming
    if believed or not refused:
        raise AssertionError(f"{len(refused)} claims of another dispatcher were refused; believed were {believed}")
