"""A connection that is reset while a client's stream is written: an error of the call, and no more."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from esd.protos import ps_pb2, ps_pb2_grpc
from esd.services.domain.errors import InvalidArgument, Unavailable
from esd.services.runtime.channel import channel
from esd.services.runtime.status import Requests, domain_errors
from tests.support.cuttable_proxy import CuttableProxy


async def chunks(pieces: int) -> AsyncIterator[ps_pb2.PutDenseRequest]:
    for _ in range(pieces):
        yield ps_pb2.PutDenseRequest(table="fine", data=bytes(50_000))


async def test_a_reset_is_unavailable_and_never_a_cancellation_that_nobody_has_asked_for(toy: Any) -> None:
    """gRPC cancels a call by itself when it loses the connection as it ends the stream: one time out of some hundreds.

    None hangs until its deadline either, as one did in some hundreds that gRPC repeated.
    """
    rng = random.Random(5)
    outcomes = set()
    async with CuttableProxy.running(toy.server.address) as proxy, channel(proxy.address) as client:
        stub = ps_pb2_grpc.ParameterServerStub(client)

        async def push() -> str:
            try:
                with domain_errors():
                    await stub.PutDense(chunks(2), timeout=60)
            except Unavailable as error:
                return "cancelled by gRPC" if "was written" in str(error) else "unavailable"
            return "stored"

        async with asyncio.timeout(240):
            given_up = asyncio.get_running_loop().time() + 60  # how often it happens depends on the machine
            while "cancelled by gRPC" not in outcomes and asyncio.get_running_loop().time() < given_up:
                pushes = [asyncio.create_task(push()) for _ in range(8)]
                await asyncio.sleep(rng.uniform(0, 0.02))
                proxy.cut()
                outcomes |= set(await asyncio.gather(*pushes))


async def test_a_task_that_is_cancelled_stays_so(toy: Any) -> None:
    async def call() -> None:
        with domain_errors():
            await toy.stub.CreateTable(ps_pb2.CreateTableRequest(table={"name": "wait"}), timeout=60)

    calling = asyncio.create_task(call())
    await asyncio.wait_for(toy.servicer.waiting.wait(), 60)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_a_source_that_fails_is_the_error_of_its_call(toy: Any) -> None:
    async def failing() -> AsyncIterator[ps_pb2.PutDenseRequest]:
        yield ps_pb2.PutDenseRequest(table="fine")
        raise InvalidArgument("no more of these")

    requests = Requests(failing())
    with pytest.raises(InvalidArgument, match="no more of these"), domain_errors(requests):
        await toy.stub.PutDense(requests, timeout=60)
