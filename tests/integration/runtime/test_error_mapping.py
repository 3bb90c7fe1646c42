"""Errors of handlers reach real clients as their own class, on all kinds of calls."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from esd.protos import ps_pb2
from esd.services.domain.errors import DeadlineExceeded, EsdError, Internal, NotFound, Unavailable
from esd.services.runtime.interceptors import GIVEN_UP_TEXT
from esd.services.runtime.status import CODES, INTERNAL_TEXT, REASON_KEY, domain_errors, error_from
from testbed.free_port import free_port

RETRIED = Unavailable

Call = Callable[[Any, str], Awaitable[Any]]
CALLS: list[Call] = [
    lambda toy, name: toy.create(name),
    lambda toy, name: toy.pull(name),
    lambda toy, name: toy.push("fine", name),
    lambda toy, name: toy.submit("fine", name),
]
KINDS = ["unary-unary", "unary-stream", "stream-unary", "stream-stream"]


@pytest.mark.parametrize("call", CALLS, ids=KINDS)
@pytest.mark.parametrize("cls", [cls for cls in CODES if cls not in (Internal, RETRIED)], ids=lambda cls: cls.__name__)
async def test_the_class_and_text_of_an_error_cross_the_wire(toy: Any, call: Call, cls: type[EsdError]) -> None:
    with pytest.raises(EsdError) as caught:
        await call(toy, cls.__name__)
    assert type(caught.value) is cls
    assert str(caught.value) == "rows is 0, the limit is 5"


@pytest.mark.parametrize("call", CALLS, ids=KINDS)
@pytest.mark.parametrize("name", ["Internal", "defect"])
async def test_defects_cross_the_wire_without_their_text(toy: Any, call: Call, name: str) -> None:
    with pytest.raises(Internal) as caught:
        await call(toy, name)
    assert str(caught.value) == INTERNAL_TEXT


@pytest.mark.parametrize("call", CALLS, ids=KINDS)
async def test_a_call_whose_handler_waits_for_work_that_is_cancelled_is_answered(
    toy: Any, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC takes any CancelledError of a handler for the call's own, and would answer nothing."""
    with pytest.raises(Unavailable) as caught:
        await call(toy, "given up")
    assert str(caught.value) == GIVEN_UP_TEXT
    assert "await work" in caplog.text, "the log says what was cancelled"


async def test_what_a_stream_sent_before_its_error_arrives(toy: Any) -> None:
    stream = toy.stub.Scan(ps_pb2.ScanRequest(table="NotFound"), timeout=60)
    assert len((await stream.read()).rows.rows) == 4
    with pytest.raises(NotFound), domain_errors():
        await stream.read()


async def test_the_raw_status_names_code_text_and_reason(toy: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await toy.stub.CreateTable(ps_pb2.CreateTableRequest(table={"name": "StaleVersion"}), timeout=60)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details() == "rows is 0, the limit is 5"
    assert caught.value.trailing_metadata()[REASON_KEY] == "StaleVersion"


@pytest.mark.parametrize(
    ("method", "stream"), [("CreateTable", False), ("Scan", False), ("PutDense", True)], ids=KINDS[:3]
)
async def test_bytes_that_are_no_message_are_the_callers_fault(toy: Any, method: str, stream: bool) -> None:
    """And not an internal error with a text of the decoder, as gRPC has it."""
    path = f"/esd.v1.ParameterServer/{method}"
    with grpc.insecure_channel(toy.server.address) as raw:
        call = raw.stream_unary(path) if stream else raw.unary_unary(path)
        with pytest.raises(grpc.RpcError) as caught:
            await asyncio.to_thread(call, iter([b"\xff"]) if stream else b"\xff", timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == f"the request of {path} is not a message of the type that it expects"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_an_address_at_which_nobody_listens_is_named(host: str) -> None:
    address = f"{host}:{free_port()}"
    async with grpc.aio.insecure_channel(address) as nobody:
        with pytest.raises(Unavailable) as caught, domain_errors():
            await nobody.unary_unary("/a/b")(b"", timeout=60)
    assert str(caught.value).startswith(f"no connection is accepted at {address}: ")


def test_a_host_that_nobody_knows_is_named() -> None:
    """By gRPC's text: how long it takes depends on where names are looked up."""
    said = "[field:hostname lookup error:address lookup failed for edge-1:50051: Domain name not found]"
    none = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, f"errors resolving edge-1:50051: {said}")
    assert str(error_from(error)) == "the host of edge-1:50051 is unknown: Domain name not found"


async def test_a_deadline_ends_the_call_on_both_sides(toy: Any) -> None:
    with pytest.raises(DeadlineExceeded):
        await toy.create("wait", seconds=0.2)
    await asyncio.wait_for(toy.servicer.cancelled.wait(), 60)


async def test_a_cancelled_call_cancels_its_handler(toy: Any) -> None:
    reading = asyncio.Event()

    async def pull() -> None:
        async for _ in toy.stub.Scan(ps_pb2.ScanRequest(table="wait"), timeout=60):
            reading.set()

    call = asyncio.create_task(pull())
    await asyncio.wait_for(toy.servicer.waiting.wait(), 60)
    # A task that is cancelled before its first read cancels its call only when that is collected (gRPC).
    await asyncio.wait_for(reading.wait(), 60)
    call.cancel()
    await asyncio.wait_for(toy.servicer.cancelled.wait(), 60)
    with pytest.raises(asyncio.CancelledError):
        await call
