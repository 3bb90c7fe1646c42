"""Messages between workers for their all-reduce: only the members of an epoch get them."""

from __future__ import annotations

import asyncio

import pytest

from esd.dispatcher.service.run import group_keys
from esd.services.domain.errors import DeadlineExceeded, InvalidArgument, NotFound, ResourceExhausted, StaleEpoch
from esd.services.domain.plans import Membership
from esd.services.domain.reports import Lease
from tests.support.simple_clients import JOB, Dispatcher, Worker


async def members(dispatcher: Dispatcher) -> tuple[Worker, Worker, int]:
    """Two workers of a running job, and its epoch."""
    await dispatcher.client.create_job(JOB)
    first, second = dispatcher.worker("edge-0"), dispatcher.worker("edge-1")
    for worker in (first, second):
        await worker.register()
    membership = await anext(first.watch())
    assert isinstance(membership, Membership)
    return first, second, membership.epoch


async def test_a_key_is_waited_for_and_may_be_told_again(dispatcher: Dispatcher) -> None:
    first, second, epoch = await members(dispatcher)
    waiting = asyncio.create_task(dispatcher.client.get_group_key(second.lease, epoch, "0/0", within=60))
    with pytest.raises(DeadlineExceeded):
        await dispatcher.client.get_group_key(first.lease, epoch, "0/1", within=0.1)
    for _ in range(2):
        await dispatcher.client.put_group_key(first.lease, epoch, "0/0", b"127.0.0.1:4711")
    assert await waiting == b"127.0.0.1:4711"


async def test_strangers_and_other_epochs_are_refused(dispatcher: Dispatcher) -> None:
    first, _, epoch = await members(dispatcher)
    await dispatcher.client.put_group_key(first.lease, epoch, "0/0", b"here")
    stranger = Lease("guessed", 1.0)
    with pytest.raises(NotFound, match="no lease 'guessed'"):
        await dispatcher.client.get_group_key(stranger, epoch, "0/0", within=60)
    with pytest.raises(NotFound, match="no lease 'guessed'"):
        await dispatcher.client.put_group_key(stranger, epoch, "0/0", b"elsewhere")
    for other in (epoch + 1, 2**64 - 1):
        with pytest.raises(StaleEpoch):
            await dispatcher.client.get_group_key(first.lease, other, "0/0", within=60)
    assert await dispatcher.client.get_group_key(first.lease, epoch, "0/0", within=60) == b"here"


async def test_the_keys_of_an_epoch_are_bounded(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_keys, "_MOST_BYTES", 100)
    first, _, epoch = await members(dispatcher)
    await dispatcher.client.put_group_key(first.lease, epoch, "a", bytes(60))
    await dispatcher.client.put_group_key(first.lease, epoch, "a", bytes(61))
    with pytest.raises(ResourceExhausted, match=r"the group keys of epoch . take 62 bytes, and 'b' needs 60 more"):
        await dispatcher.client.put_group_key(first.lease, epoch, "b", bytes(60))
    for key in ("", "x" * 257):
        with pytest.raises(InvalidArgument, match=r"it must have 1\.\.256"):
            await dispatcher.client.put_group_key(first.lease, epoch, key, b"")
