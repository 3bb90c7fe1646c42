"""A worker's stream, message by message: a bad message is refused by name, and disturbs no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from esd.protos import common_pb2, dispatcher_pb2_grpc
from esd.protos import dispatcher_pb2 as pb
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import InvalidArgument, StaleEpoch, Unavailable
from esd.services.domain.plans import IterationPlan, Membership
from esd.services.domain.reports import FailureReport, Lease
from esd.services.runtime.channel import channel
from esd.services.runtime.status import domain_errors
from esd.services.wire.attend import encode_request, encode_said
from esd.services.wire.plans import decode_plan_messages
from tests.support.simple_clients import JOB, Dispatcher, Worker, job_with, report_of, samples, stream

PATH = "/esd.v1.Dispatcher/Attend"
Send = Callable[..., Awaitable[pb.AttendResponse]]


async def two_workers(dispatcher: Dispatcher) -> tuple[Worker, Worker]:
    await dispatcher.client.create_job(JOB)
    first, second = dispatcher.worker("edge-0"), dispatcher.worker("edge-1")
    await first.register()
    await second.register()
    return first, second


def heartbeat(sequence: int) -> pb.AttendRequest:
    return pb.AttendRequest(sequence=sequence, heartbeat=pb.WORKER_PHASE_COMPUTE)


async def read_until_answered(call: Any, sequence: int, plans: list[Any]) -> list[common_pb2.Refusal]:
    """Reads up to the answer to a message. Returns the refusals, and appends all plans to `plans`."""
    refusals: list[common_pb2.Refusal] = []
    async for data in call:
        response = pb.AttendResponse.FromString(data)
        refusals.extend(response.refusals)
        plans.extend(decode_plan_messages(response))
        if response.received >= sequence:
            break
    return refusals


class GatedLink(Traffic):
    """Holds back all that arrives until it is opened, and keeps the sizes of the parts."""

    chunk_bytes = 32

    def __init__(self) -> None:
        self.opened, self.asked = asyncio.Event(), asyncio.Event()
        self.parts: list[int] = []
        self.counted = 0

    def received(self, **sizes: int) -> None:
        self.counted += sizes["plans"]

    async def receive(self, size: int) -> None:
        self.parts.append(size)
        self.asked.set()
        await self.opened.wait()


async def test_messages_to_a_worker_pass_its_link(dispatcher: Dispatcher) -> None:
    worker, _ = await two_workers(dispatcher)
    link = GatedLink()
    async with asyncio.timeout(60), dispatcher.client.attend_here(worker.held, traffic=link) as attendance:
        following = asyncio.ensure_future(anext(attendance))
        await link.asked.wait()
        assert not following.done()
        link.opened.set()
        assert isinstance(await following, Membership)
    assert sum(link.parts) == link.counted > max(link.parts) == link.chunk_bytes


async def test_bad_messages_are_refused_one_by_one_between_good_ones(dispatcher: Dispatcher) -> None:
    worker, _ = await two_workers(dispatcher)
    submission = asyncio.create_task(dispatcher.client.submit(JOB.name, stream([samples(8)])))
    plans: list[Any] = []
    async with channel(dispatcher.address) as opened, asyncio.timeout(60):
        call = opened.stream_stream(PATH, None, None)()
        await call.write(pb.AttendRequest(attendance=pb.Attendance(lease_id=worker.held.lease_id)).SerializeToString())
        await call.write(heartbeat(1).SerializeToString())
        while not plans or not isinstance(plans[-1], IterationPlan):
            await read_until_answered(call, 0, plans)
        plan = plans[-1]
        nothing = pb.AttendRequest(sequence=4)
        bad = [
            (b"\x08\x02" + b"\xff" * 9, "these 11 bytes are no AttendRequest"),
            (heartbeat(1).SerializeToString(), "sequence is 1, it must be above 2"),
            (nothing.SerializeToString(), "body is not set"),
            (pb.AttendRequest(sequence=5, heartbeat=77).SerializeToString(), "phase is 77"),  # type: ignore[arg-type]
            (
                pb.AttendRequest(sequence=6, attendance=pb.Attendance(lease_id="x")).SerializeToString(),
                "the stream is open already",
            ),
            (
                encode_request(7, encode_said(report_of(plan, iteration=5))),
                "reports iteration 5; the next one it has to report is 0",
            ),
            (
                encode_request(8, encode_said(report_of(plan, epoch=9))),
                "epoch 9 is not the present one: the job is in epoch 0",
            ),
            (
                pb.AttendRequest(sequence=9, iterations=[pb.IterationReport(labels=b"\1")]).SerializeToString(),
                "score_bins are (0, 1), labels are (1, 1)",
            ),
            (
                pb.AttendRequest(sequence=10, flush=pb.FlushReport(iteration=7)).SerializeToString(),
                "flush of iteration",
            ),
        ]
        for data, _ in bad:
            await call.write(data)
        await call.write(encode_request(11, encode_said(report_of(plan))))
        refusals = await read_until_answered(call, 11, plans)
        call.cancel()
    assert [refusal.sequence for refusal in refusals] == [2, 1, 4, 5, 6, 7, 8, 9, 10]
    for refusal, (_, text) in zip(refusals, bad, strict=True):
        assert text in refusal.message
    stale = refusals[6]
    assert (stale.code, stale.reason) == (grpc.StatusCode.FAILED_PRECONDITION.value[0], "StaleEpoch")
    state = await dispatcher.client.describe()
    assert state is not None
    assert [each.iterations for each in state.workers] == [1, 0]  # the good report between the bad ones
    assert await submission == 8


async def test_plans_that_are_ready_come_in_one_message(dispatcher: Dispatcher) -> None:
    job = job_with(workers=1, window=4)
    await dispatcher.client.create_job(job)
    worker = dispatcher.worker("edge-0")
    await worker.register()
    submission = asyncio.create_task(dispatcher.client.submit(JOB.name, stream([samples(8 * 4)])))
    attendance = await worker.attend()
    for _ in range(1 + 4):  # the membership, and what the window has room for
        await anext(attendance)
    async with channel(dispatcher.address) as opened, asyncio.timeout(60):
        call = opened.stream_stream(PATH, None, None)()
        await call.write(pb.AttendRequest(attendance=pb.Attendance(lease_id=worker.held.lease_id)).SerializeToString())
        told = [decode_plan_messages(pb.AttendResponse.FromString(await call.read())) for _ in range(2)]
        call.cancel()
    assert [[type(each) for each in message] for message in told] == [[Membership], [IterationPlan] * 4]
    assert await submission == 8 * 4


async def test_a_message_of_several_reports_confirms_them_in_order(dispatcher: Dispatcher) -> None:
    job = job_with(workers=1, window=4)
    await dispatcher.client.create_job(job)
    worker = dispatcher.worker("edge-0")
    await worker.register()
    submission = asyncio.create_task(dispatcher.client.submit(JOB.name, stream([samples(8 * 4)])))
    plans: list[Any] = []
    async with channel(dispatcher.address) as opened, asyncio.timeout(60):
        call = opened.stream_stream(PATH, None, None)()
        await call.write(pb.AttendRequest(attendance=pb.Attendance(lease_id=worker.held.lease_id)).SerializeToString())
        while len(plans) < 1 + 4:
            await read_until_answered(call, 0, plans)
        _, *plans = plans
        said = [encode_said(report_of(plan)) for plan in plans]
        await call.write(encode_request(1, said[0], said[1], heartbeat(0).SerializeToString()))
        await call.write(encode_request(2, said[2], said[0], said[2]))  # what is known comes again
        assert await read_until_answered(call, 2, []) == []
        await call.write(encode_request(3, said[3], encode_said(report_of(plans[3], iteration=9))))
        (refusal,) = await read_until_answered(call, 3, [])
        call.cancel()
    assert "reports iteration 9; the next one it has to report is 4" in refusal.message
    state = await dispatcher.client.describe()
    assert state is not None
    assert state.iterations_confirmed == 4
    assert await submission == 8 * 4


async def test_a_stream_that_does_not_say_whose_it_is_ends(dispatcher: Dispatcher) -> None:
    await two_workers(dispatcher)
    for first in (heartbeat(1).SerializeToString(), None):
        async with channel(dispatcher.address) as opened:
            call = opened.stream_stream(PATH, None, None)()
            await (call.write(first) if first is not None else call.done_writing())
            with pytest.raises(InvalidArgument, match="attendance is not set in the first message"), domain_errors():
                await call.read()


async def test_a_failure_ends_the_epoch_and_is_answered(dispatcher: Dispatcher) -> None:
    """The failure also ends the stream, so the answer must come before."""
    worker, other = await two_workers(dispatcher)
    attendance, beside = await worker.attend(), await other.attend()
    membership = await anext(attendance)
    assert isinstance(membership, Membership)
    await attendance.report(FailureReport("no space left", membership.epoch, fatal=True))
    state = await dispatcher.client.describe()
    assert state is not None
    assert state.failure == "worker edge-0 (slot 0) cannot go on: no space left"
    for each in (attendance, beside):
        with pytest.raises(Exception, match="no space left"):
            [message async for message in each]


async def test_a_refused_report_breaks_the_attendance(dispatcher: Dispatcher) -> None:
    """The training worker gets the refusal although it reads no answer."""
    worker, _ = await two_workers(dispatcher)
    submission = asyncio.create_task(dispatcher.client.submit(JOB.name, stream([samples(8)])))
    attendance = await worker.attend()
    async for message in attendance:
        if isinstance(message, IterationPlan):
            attendance.report(report_of(message, epoch=7))
            break
    with pytest.raises(StaleEpoch, match="epoch 7 is not the present one"):
        await attendance.broken()
    assert await submission == 8


class _Silent(dispatcher_pb2_grpc.DispatcherServicer):
    """Accepts all messages and answers none."""

    def __init__(self) -> None:
        self.streams = 0

    async def Attend(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.streams += 1
        async for _ in request_iterator:
            pass
        if False:
            yield


async def test_a_dispatcher_that_does_not_answer_counts_as_away() -> None:
    server, silent = grpc.aio.server(), _Silent()
    dispatcher_pb2_grpc.add_DispatcherServicer_to_server(silent, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with (
            asyncio.timeout(60),
            AsyncDispatcherClient(f"127.0.0.1:{port}", timeout=0.1, patience=0.5) as client,
            client.attend(Lease("somebody's", 0.1)) as attendance,
        ):
            with pytest.raises(Unavailable):
                await anext(attendance)
            with pytest.raises(Unavailable):
                await attendance.report(FailureReport("nobody hears it", 0))
        assert silent.streams > 1  # it was tried again
    finally:
        await server.stop(0)
