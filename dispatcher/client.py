"""A typed client of the dispatcher: domain objects in and out, domain errors raised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Self

import grpc
import numpy as np
from numpy.typing import NDArray

from dispatcher import wire
from dispatcher.core.hybrid import HybridResult
from protos import dispatcher_pb2 as pb
from protos import dispatcher_pb2_grpc
from services.domain.batches import SampleBatch
from services.domain.errors import Unavailable
from services.domain.jobs import Criterion, JobSpec
from services.domain.plans import IterationPlan, PlanMessage
from services.domain.reports import Lease, Registration, Report, Trouble, WorkerPhase
from services.domain.state import JobState
from services.runtime.channel import channel
from services.runtime.security import PLAINTEXT, Credentials
from services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES
from services.runtime.status import domain_errors
from services.wire.batches import encode_batch
from services.wire.jobs import encode_job
from services.wire.plans import decode_plan_message
from services.wire.reports import decode_lease, encode_heartbeat, encode_registration, encode_report
from services.wire.state import decode_state

RECONNECT_SECONDS = 0.1  # first pause before a broken plan stream is opened again; doubles up to the longest
LONGEST_RECONNECT_SECONDS = 2.0

_NO_STATUS_YET = "Internal error from Core"  # grpc.aio's text when a write fails
_STATUS_LOOKS = 100
_STATUS_PAUSE_SECONDS = 0.01


class DispatcherClient:
    """Calls one dispatcher.

        async with DispatcherClient("127.0.0.1:50051") as dispatcher:
            state = await dispatcher.describe()

    All methods raise the errors of services.domain.errors; Unavailable when the dispatcher cannot be reached.

    Args:
        address: `host:port`.
        timeout: deadline of every call but the streams, in seconds.
        max_message_bytes: longest message sent or taken; give the dispatcher the same.
        credentials: for a dispatcher that uses TLS or asks for a token, such as
            `Credentials.read(load(ClientSettings))`.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 30.0,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        credentials: Credentials = PLAINTEXT,
    ) -> None:
        self._channel = channel(address, max_message_bytes, timeout, credentials)
        self._stub = dispatcher_pb2_grpc.DispatcherStub(self._channel)  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection and ends open streams."""
        await self._channel.close(None)

    async def hybrid_dis(
        self,
        costs: NDArray[np.float32] | NDArray[np.int32],
        capacities: NDArray[np.int32],
        *,
        alpha: float = 1.0,
        criterion: Criterion = Criterion.MIN2_MIN,
        solver: str = "auto",
    ) -> HybridResult:
        """Assigns k samples to n workers (ESD Alg. 2).

        Args:
            costs: float32 or int32 [k, n], finite, not negative.
            capacities: int32 [n], sum k.
            alpha: share of each capacity filled by the exact solver.
            criterion: which rows it takes.
            solver: its name.
        """
        request = wire.encode_problem(wire.Problem(costs, capacities, alpha, criterion, solver))
        return wire.decode_result(await _call(self._stub.HybridDis, request))

    async def create_job(self, job: JobSpec) -> bool:
        """Opens a job; False if exactly this one is open already. FailedPrecondition: another one is running."""
        response = await _call(self._stub.CreateJob, pb.CreateJobRequest(job=encode_job(job)))
        return bool(response.created)

    async def register(self, registration: Registration) -> Lease:
        """Takes a worker slot. NotFound: no job. ResourceExhausted: all slots are taken."""
        return decode_lease(await _call(self._stub.RegisterWorker, encode_registration(registration)))

    async def heartbeat(
        self, lease_id: str, trouble: Trouble | None = None, phase: WorkerPhase = WorkerPhase.IDLE
    ) -> None:
        """Keeps a lease alive. NotFound: it has expired. FailedPrecondition: the job failed."""
        await _call(self._stub.Heartbeat, encode_heartbeat(lease_id, trouble, phase))

    async def report(self, lease_id: str, report: Report) -> None:
        """Confirms an iteration or the flush; may be repeated."""
        await _call(self._stub.Report, encode_report(lease_id, report))

    async def describe(self) -> JobState | None:
        """The state of the running or last job; None if there was none."""
        response = await _call(self._stub.Describe, pb.DescribeJobRequest())
        return decode_state(response.job) if response.HasField("job") else None

    async def submit(self, job: str, batches: AsyncIterator[SampleBatch]) -> int:
        """Sends the sample stream of a job, or what is left of it, and ends it. Returns the samples it has.

        Draws the next batch only when the last one is acknowledged, so a slow job slows the source down. If the source
        raises or the call breaks, the stream stays open, and another call may go on with it.

        Args:
            job: name of the job.
            batches: batches of any size, in training order.

        Raises:
            FailedPrecondition: the stream has ended before; the job failed; the message names the cause.
        """
        return await self.feed(job, lambda _: batches)

    async def feed(self, job: str, stream_from: Callable[[int], AsyncIterator[SampleBatch]]) -> int:
        """As `submit`, for a stream that can be read from any sample on.

        Args:
            job: name of the job.
            stream_from: the stream without its first so many samples, which the job has acknowledged before.
        """
        call = self._stub.Submit()
        try:
            with domain_errors():
                # Nothing but the job's name until the first answer, for up to then gRPC may repeat the call.
                position = await _exchange(call, pb.SubmitRequest(job=job))
                async for batch in stream_from(position):
                    position = await _exchange(call, pb.SubmitRequest(batch=encode_batch(batch), position=position))
                samples = await _exchange(call, pb.SubmitRequest(end=True))
                await call.code()  # lets the call end in order
                return samples
        finally:
            call.cancel()

    async def watch_plans(
        self, lease_id: str, from_iteration: int = 0, *, patience: float = 30.0
    ) -> AsyncGenerator[PlanMessage]:
        """Yields the membership, one plan per iteration, the flush plan and the end of the stream, each once.

        A broken stream is opened again, where it broke.

        Args:
            lease_id: of the worker.
            from_iteration: first plan wanted, not before the first unconfirmed one.
            patience: seconds in which a broken stream must be back.

        Raises:
            Unavailable: the dispatcher was out of reach for too long.
            FailedPrecondition: the job failed; the message names the cause.
        """
        loop = asyncio.get_running_loop()
        seen: set[tuple[type[PlanMessage], object]] = set()
        pause, give_up = RECONNECT_SECONDS, loop.time() + patience
        while True:
            try:
                async with aclosing(self._watch_once(lease_id, from_iteration)) as messages:
                    async for message in messages:
                        pause, give_up = RECONNECT_SECONDS, loop.time() + patience
                        if isinstance(message, IterationPlan):
                            from_iteration = message.iteration + 1
                        else:
                            kind = (type(message), getattr(message, "iteration", None))
                            if kind in seen:
                                continue
                            seen.add(kind)
                        yield message
                return
            except Unavailable:
                if loop.time() + pause > give_up:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_RECONNECT_SECONDS)

    async def _watch_once(self, lease_id: str, from_iteration: int) -> AsyncGenerator[PlanMessage]:
        call = self._stub.WatchPlans(pb.WatchPlansRequest(lease_id=lease_id, from_iteration=from_iteration))
        try:
            with domain_errors():
                async for message in call:
                    yield decode_plan_message(message)
        finally:
            call.cancel()


async def _call(method: Any, request: Any) -> Any:
    with domain_errors():
        return await method(request)


async def _exchange(call: Any, request: pb.SubmitRequest) -> int:
    """Sends one message and waits for its answer: the samples taken in so far."""
    try:
        await call.write(request)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        # gRPC notices that a call is over before it has read why, and calls it an internal error meanwhile.
        for _ in range(_STATUS_LOOKS):
            if await call.details() != _NO_STATUS_YET:
                break
            await asyncio.sleep(_STATUS_PAUSE_SECONDS)
    response = await call.read()
    if not isinstance(response, pb.SubmitResponse):  # gRPC's mark of the end
        raise Unavailable("the dispatcher closed the sample stream before its end")
    return int(response.samples)
