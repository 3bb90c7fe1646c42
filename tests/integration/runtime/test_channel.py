"""The channel factory: retries, deadlines, limits."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from esd.protos import dispatcher_pb2, dispatcher_pb2_grpc, ps_pb2, ps_pb2_grpc, worker_pb2, worker_pb2_grpc
from esd.services.domain.errors import DeadlineExceeded, FailedPrecondition, Overloaded, ResourceExhausted, Unavailable
from esd.services.runtime.channel import channel
from esd.services.runtime.deadline import each_within
from esd.services.runtime.settings import LEAST_MESSAGE_BYTES
from esd.services.runtime.status import domain_errors


async def test_unavailable_is_retried_until_it_recovers(toy: Any) -> None:
    assert (await toy.create("recovers")).created
    assert toy.servicer.attempts["recovers"] == 3


async def test_unavailable_is_reported_after_five_attempts(toy: Any) -> None:
    with pytest.raises(Unavailable, match="rows is 0"):
        await toy.create("Unavailable")
    assert toy.servicer.attempts["Unavailable"] == 5


@pytest.mark.parametrize("name", ["FailedPrecondition", "ResourceExhausted", "DeadlineExceeded", "NotFound", "defect"])
async def test_nothing_else_is_retried(toy: Any, name: str) -> None:
    with pytest.raises(Exception, match=r"rows is 0|internal error"):
        await toy.create(name)
    assert toy.servicer.attempts[name] == 1


async def test_a_stream_that_has_begun_to_answer_is_not_retried(toy: Any) -> None:
    with pytest.raises(Unavailable):
        await toy.pull("Unavailable")
    assert toy.servicer.attempts["Unavailable"] == 1


async def test_nobody_at_the_address_is_an_error_and_no_wait() -> None:
    async with channel("127.0.0.1:1") as nowhere:
        stub = ps_pb2_grpc.ParameterServerStub(nowhere)
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"), domain_errors():
            await asyncio.wait_for(stub.DescribeServer(ps_pb2.DescribeServerRequest()), 60)


async def test_a_call_that_another_service_gets_names_its_address(toy: Any) -> None:
    async with channel(toy.server.address) as mistaken:
        stub = worker_pb2_grpc.WorkerStub(mistaken)
        with pytest.raises(FailedPrecondition) as caught, domain_errors():
            await stub.DescribeWorker(worker_pb2.DescribeWorkerRequest())
    assert f"the service at {toy.server.address} is not a Worker, since it has no call DescribeWorker" in str(
        caught.value
    )


async def test_unary_calls_have_a_deadline_of_their_own(toy: Any) -> None:
    async with channel(toy.server.address, deadline_seconds=0.2) as impatient:
        stub = ps_pb2_grpc.ParameterServerStub(impatient)
        with pytest.raises(DeadlineExceeded), domain_errors():
            await asyncio.wait_for(stub.CreateTable(ps_pb2.CreateTableRequest(table={"name": "wait"})), 60)


async def test_a_deadline_is_as_long_as_it_is_said_to_be(toy: Any) -> None:
    """gRPC's own ones, of a channel's configuration, are one to two seconds shorter."""
    async with channel(toy.server.address, deadline_seconds=60) as patient:
        stub = ps_pb2_grpc.ParameterServerStub(patient)
        for timeout, expected in ((None, 60), (30, 30), (300, 300)):
            called = time.monotonic()
            await stub.CreateTable(ps_pb2.CreateTableRequest(table={"name": "fine"}), timeout=timeout)
            took = time.monotonic() - called
            assert expected <= toy.servicer.deadlines.pop() - called < expected + took + 1  # gRPC rounds it up


async def test_a_call_that_ends_unanswered_names_the_service_and_the_time(toy: Any) -> None:
    async with channel(toy.server.address) as connected:
        stub = ps_pb2_grpc.ParameterServerStub(connected)
        await stub.CreateTable(ps_pb2.CreateTableRequest(table={"name": "fine"}))
        with pytest.raises(DeadlineExceeded) as caught, domain_errors():
            await stub.CreateTable(ps_pb2.CreateTableRequest(table={"name": "wait"}), timeout=0.2)
    assert str(caught.value) == f"{toy.server.address} has not answered within 0.2 s"


async def test_what_a_service_waited_for_in_vain_it_says_itself(toy: Any) -> None:
    with pytest.raises(DeadlineExceeded, match=r"^rows is 0, the limit is 5$"):
        await toy.create("DeadlineExceeded")


CALLS = {
    "one request": lambda opened: ps_pb2_grpc.ParameterServerStub(opened).DescribeServer(
        ps_pb2.DescribeServerRequest(), timeout=0.5
    ),
    "several requests": lambda opened: dispatcher_pb2_grpc.DispatcherStub(opened).HybridDis(
        iter([dispatcher_pb2.HybridDisRequest()]), timeout=0.5
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_call_that_ends_without_a_connection_says_so(call: Callable[[Any], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        address = "{}:{}".format(*silent.getsockname())
        async with channel(address) as opened:
            with pytest.raises(DeadlineExceeded, match="no answer from there") as caught, domain_errors():
                await call(opened)
    assert f"no connection to {address} within 0.5 s" in str(caught.value)


async def test_a_call_that_is_given_up_is_given_up_at_the_service(toy: Any) -> None:
    call = asyncio.create_task(toy.create("wait"))
    await asyncio.wait_for(toy.servicer.waiting.wait(), 60)
    call.cancel()
    await asyncio.wait_for(toy.servicer.cancelled.wait(), 60)
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_streams_have_none(toy: Any) -> None:
    async with channel(toy.server.address, deadline_seconds=0.1) as impatient:
        stub = ps_pb2_grpc.ParameterServerStub(impatient)
        stream = stub.Scan(ps_pb2.ScanRequest(table="wait"))
        await stream.read()
        with pytest.raises(DeadlineExceeded), domain_errors():  # waits out the deadline that the stream must not have
            await stub.CreateTable(ps_pb2.CreateTableRequest(table={"name": "wait"}))
        toy.servicer.released.set()
        assert len((await stream.read()).rows.rows) == 8


@pytest.mark.parametrize(
    ("setting", "call"),
    [
        ("max_request_bytes", lambda toy: toy.create("x" * 2_200_000)),
        ("max_request_bytes", lambda toy: toy.push("fine", "x" * 2_200_000)),
        ("max_message_bytes", lambda toy: toy.pull("big")),
    ],
    ids=["request", "request stream", "answer"],
)
async def test_a_message_over_the_limit_names_the_setting(
    serve_toy: Any, setting: str, call: Callable[[Any], Awaitable[Any]]
) -> None:
    async with serve_toy(**{setting: LEAST_MESSAGE_BYTES}) as toy:
        with pytest.raises(ResourceExhausted, match=f"larger than max .* {setting} .*{setting.upper()}"):
            await call(toy)


async def test_calls_over_the_limit_are_refused_and_name_the_setting(serve_toy: Any) -> None:
    async with serve_toy(max_concurrent_rpcs=1) as toy:
        first = asyncio.create_task(toy.create("wait"))
        await asyncio.wait_for(toy.servicer.waiting.wait(), 60)
        with pytest.raises(Overloaded, match="MAX_CONCURRENT_RPCS"):
            await toy.create("fine")
        toy.servicer.released.set()
        assert (await first).created
        assert (await toy.create("fine")).created


async def test_a_port_in_use_is_an_error_that_names_address_and_variable(serve_toy: Any, toy: Any) -> None:
    address = toy.server.address
    with pytest.raises(
        FailedPrecondition, match=f"cannot listen on {address}: Address already in use; .*ESD_TOY_LISTEN"
    ):
        async with serve_toy(listen=address):
            pass


async def test_a_metrics_port_in_use_is_an_error_that_names_the_variable(serve_toy: Any) -> None:
    async with serve_toy(metrics_port=0) as toy:
        port = int(toy.server.metrics_address.rpartition(":")[2])
        text = f"127.0.0.1:{port}: Address already in use; .*ESD_TOY_METRICS_PORT"
        with pytest.raises(FailedPrecondition, match=text):
            async with serve_toy(metrics_port=port):
                pass


async def test_each_part_of_a_long_answer_has_its_time(toy: Any) -> None:
    parts = each_within(toy.stub.Scan(ps_pb2.ScanRequest(table="wait")), 0.2)
    assert len((await anext(parts)).rows.rows) == 4
    with pytest.raises(DeadlineExceeded, match=r"^the next part of an answer has not come within 0\.2 s$"):
        await anext(parts)
    toy.servicer.released.set()
    whole = each_within(toy.stub.Scan(ps_pb2.ScanRequest(table="wait")), 60)
    assert [len(part.rows.rows) async for part in whole] == [4, 8]
