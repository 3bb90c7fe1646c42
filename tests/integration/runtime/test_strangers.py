"""Peers without a token can take neither a server's memory for messages nor the places of callers with a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from esd.protos import ps_pb2, ps_pb2_grpc
from esd.services.domain.errors import Overloaded, Unauthenticated
from esd.services.runtime import interceptors
from esd.services.runtime.call_limits import HEALTH_CALLS_BY_PEER
from esd.services.runtime.channel import channel
from esd.services.runtime.retry import repeated
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import LEAST_MESSAGE_BYTES, ClientSettings
from esd.services.runtime.status import domain_errors
from tests.support.certificates import Certificates

LONG = "x" * (LEAST_MESSAGE_BYTES + 5000)  # the toys below take the least that a service can


def stranger(certificates: Certificates) -> Credentials:
    return Credentials.read(ClientSettings(tls_ca=certificates.authority))


async def for_ever() -> AsyncIterator[Any]:
    """The requests of a call that never come, and never end."""
    await asyncio.Event().wait()
    yield


@pytest.mark.parametrize(
    "call",
    [
        lambda stub: stub.CreateTable(ps_pb2.CreateTableRequest(table={"name": LONG}), timeout=60),
        lambda stub: stub.PutDense(iter([ps_pb2.PutDenseRequest(table=LONG)]), timeout=60),
        lambda stub: anext(aiter(stub.Scan(ps_pb2.ScanRequest(table=LONG), timeout=60))),
    ],
    ids=["request", "request stream", "answer stream"],
)
async def test_the_token_is_asked_for_before_a_message_is_read(
    serve_toy: Any, certificates: Certificates, call: Any
) -> None:
    async with (
        serve_toy(
            **certificates.of("service", token=True), max_request_bytes=2**16, max_message_bytes=LEAST_MESSAGE_BYTES
        ) as toy,
        channel(toy.server.address, credentials=stranger(certificates)) as to_server,
    ):
        stub = ps_pb2_grpc.ParameterServerStub(to_server)

        async def attempt() -> None:
            with domain_errors():
                await call(stub)

        # A server that reads it first finds it too long, which is another error. Where a message is still being sent
        # when the answer comes, gRPC may tell of a broken stream instead.
        with pytest.raises(Unauthenticated):
            await repeated(attempt, 60)


async def test_a_call_without_a_token_takes_no_place(serve_toy: Any, certificates: Certificates) -> None:
    service = certificates.of("service", token=True)
    member = Credentials.read(ClientSettings(tls_ca=certificates.authority, token_file=certificates.token))
    async with (
        serve_toy(**service, max_concurrent_rpcs=1) as toy,
        channel(toy.server.address, credentials=stranger(certificates)) as outside,
        channel(toy.server.address, credentials=member) as inside,
    ):
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ps_pb2_grpc.ParameterServerStub(outside).PutDense(for_ever(), timeout=60)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        request = ps_pb2.CreateTableRequest(table={"name": "fine"})
        assert (await ps_pb2_grpc.ParameterServerStub(inside).CreateTable(request, timeout=60)).created


async def test_health_streams_have_limits_of_their_own_and_take_no_place(serve_toy: Any) -> None:
    async with serve_toy(max_concurrent_rpcs=1) as toy, channel(toy.server.address) as outside:
        health = health_pb2_grpc.HealthStub(outside)
        watches = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(HEALTH_CALLS_BY_PEER)]
        for watch in watches:
            await watch.read()
        with (
            pytest.raises(Overloaded, match=r"too many calls of .*Watch are open: 8 from one machine"),
            domain_errors(),
        ):
            await anext(aiter(health.Watch(health_pb2.HealthCheckRequest())))
        assert (await toy.create("fine")).created
        assert (await health.Check(health_pb2.HealthCheckRequest())).status, "a probe gets its answer all the same"

        watches[0].cancel()
        async with asyncio.timeout(60):
            await until_answered(health)


async def until_answered(health: Any) -> None:
    """Returns when a health stream can be opened again: the server hears of the end of another a moment later."""
    while True:
        try:
            with domain_errors():
                await anext(aiter(health.Watch(health_pb2.HealthCheckRequest())))
        except Overloaded:
            await asyncio.sleep(0.01)
        else:
            return


async def test_a_health_call_whose_request_does_not_come_is_ended(
    serve_toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interceptors, "HEALTH_REQUEST_SECONDS", 0.1)
    async with serve_toy() as toy, channel(toy.server.address) as outside:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await outside.stream_unary("/grpc.health.v1.Health/Check")(for_ever(), timeout=60)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "did not arrive within 0.1 s" in str(caught.value.details())


async def test_a_call_that_ends_before_its_request_is_refused(toy: Any) -> None:
    async with channel(toy.server.address) as outside:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await outside.stream_unary("/esd.v1.ParameterServer/CreateTable")(iter([]), timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "ended before its request arrived" in str(caught.value.details())
