"""The dispatcher's client for programs that run in an event loop. The blocking client runs it in a thread."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self
from weakref import WeakSet

import grpc
from numpy.typing import ArrayLike

from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc
from esd.services.clients.attendance import Attendance, idle
from esd.services.clients.attendance_aside import AttendanceAside
from esd.services.clients.plan_watch import watched_plans
from esd.services.clients.read_ahead import read_ahead
from esd.services.clients.traffic import Traffic
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument, NotFound, Unavailable
from esd.services.domain.hybrid import HybridProblem, HybridResult
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import Criterion
from esd.services.domain.reports import Lease, Registration, WorkerPhase
from esd.services.domain.sources import Taken
from esd.services.domain.state import Evaluation, JobState
from esd.services.domain.watched import WatchedPlans
from esd.services.runtime.answers import ReadableAnswers
from esd.services.runtime.channel import channel
from esd.services.runtime.retry import AWAY, repeated
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES
from esd.services.runtime.status import domain_errors
from esd.services.wire.batches import decode_position, encode_batch, in_messages
from esd.services.wire.hybrid import decode_result, encode_problem
from esd.services.wire.jobs import decode_columns, encode_job
from esd.services.wire.reports import LONGEST_WAIT_SECONDS, decode_lease, encode_registration
from esd.services.wire.state import decode_state, encode_evaluation
from esd.services.wire.watched import WatchRequest

_ATTEND = f"/{pb.DESCRIPTOR.services_by_name['Dispatcher'].full_name}/Attend"
_OPENING_SECONDS = 3.0  # for which a call that opens a stream is repeated; gRPC repeats only calls without streams
_NO_STATUS_YET = "Internal error from Core"  # grpc.aio's text when a write fails
_STATUS_LOOKS = 100
_STATUS_PAUSE_SECONDS = 0.01
_LOG_SECONDS = 60.0  # between two lines in the log about an unreachable dispatcher

_log = logging.getLogger(__name__)


class AsyncDispatcherClient:
    """Calls one dispatcher from an event loop.

        async with AsyncDispatcherClient("127.0.0.1:50051") as dispatcher:
            state = await dispatcher.describe()

    `esd.services.clients.dispatcher.DispatcherClient` has the same methods and documents them: arguments, results and
    errors are the same. A stream of samples may be an asynchronous iterable here; a blocking iterable is
    read in a thread. A client belongs to the event loop in which it was made.

    Example:
        >>> async def read_state():
        ...     async with esd.AsyncDispatcherClient("127.0.0.1:50051") as dispatcher:
        ...         return await dispatcher.describe()
        >>> asyncio.run(read_state()) is None  # the dispatcher has no job
        True
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 30.0,
        patience: float = 30.0,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        credentials: Credentials = PLAINTEXT,
        caller: str = "",
    ) -> None:
        self._connect_again = partial(
            AsyncDispatcherClient,
            address,
            timeout=timeout,
            patience=patience,
            max_message_bytes=max_message_bytes,
            credentials=credentials,
            caller=caller,
        )
        self._attendances: WeakSet[AttendanceAside] = WeakSet()
        self._submitters: dict[tuple[str, int], int] = {}  # instances by job and part, of calls that have ended
        self._address = address
        self._logged = -math.inf  # when an unreachable dispatcher was last logged
        self._timeout = timeout
        self._patience = patience
        self._channel = channel(address, max_message_bytes, timeout, credentials, caller)
        self._stub = dispatcher_pb2_grpc.DispatcherStub(ReadableAnswers(self._channel))  # type: ignore[no-untyped-call]
        self._attend: Any = self._channel.stream_stream(_ATTEND, None, None)  # without codecs: bytes travel as they are

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection and ends open streams."""
        for attendance in list(self._attendances):
            await attendance.aclose()
        await self._channel.close(None)

    # --- of users and drivers ------------------------------------------------------------------------------------

    async def hybrid_dis(
        self,
        costs: ArrayLike,
        capacities: ArrayLike,
        *,
        alpha: float = 1.0,
        criterion: Criterion = Criterion.MIN2_MIN,
        solver: str = "auto",
    ) -> HybridResult:
        """Assigns k samples to n workers."""
        problem = HybridProblem.of(costs, capacities, alpha, criterion, solver)
        answer = await repeated(lambda: _answer(self._stub.HybridDis, encode_problem(problem)), _OPENING_SECONDS)
        return decode_result(answer)

    async def create_job(self, job: JobSpec) -> bool:
        """Opens a job; False if exactly this job is open already."""
        response = await _answer(self._stub.CreateJob, pb.CreateJobRequest(job=encode_job(job)))
        return bool(response.created)

    async def cancel_job(self, job: str, reason: str) -> bool:
        """Ends a job; False if it had ended before."""
        response = await _answer(self._stub.CancelJob, pb.CancelJobRequest(job=job, reason=reason))
        return bool(response.cancelled)

    async def record_evaluations(self, job: str, evaluations: Sequence[Evaluation]) -> None:
        """Records the quality of a job's model on held-out samples."""
        messages = map(encode_evaluation, evaluations)
        await _answer(self._stub.RecordEvaluations, pb.RecordEvaluationsRequest(job=job, evaluations=messages))

    async def describe(self) -> JobState | None:
        """Returns the state of the running or last job, None if there was none."""
        response = await _answer(self._stub.DescribeJob, pb.DescribeJobRequest())
        return decode_state(response.job) if response.HasField("job") else None

    async def describe_page(self, job: str) -> str:
        """Returns the document of a job's page, as JSON."""
        response = await _answer(self._stub.DescribePage, pb.DescribePageRequest(job=job))
        return str(response.json)

    def watch_plans(
        self, job: str, from_iteration: int | None = None, *, epoch: int | None = None, ids: bool = False
    ) -> AsyncGenerator[WatchedPlans]:
        """Yields the plans of all workers of a job, each once, in the order of their publication."""
        request = WatchRequest(job, from_iteration, epoch, ids)
        return watched_plans(self._stub.WatchPlans, request, self._patience)

    async def submit(
        self, job: str, batches: AsyncIterable[SampleBatch] | Iterable[SampleBatch], *, part: int | None = None
    ) -> int:
        """Sends the sample stream of a job, or one part of it, or the rest of either, and ends it."""
        if not isinstance(batches, AsyncIterable | Iterable):
            raise InvalidArgument(f"batches are a {type(batches).__name__}, expected an iterable of esd.SampleBatch")
        return await self.feed(job, lambda _: batches, part=part)

    async def feed(
        self,
        job: str,
        stream_from: Callable[[Taken], AsyncIterable[SampleBatch] | Iterable[SampleBatch]],
        *,
        part: int | None = None,
        stream: str = "",
    ) -> int:
        """Sends a sample stream, or one part of it, whose source can begin at any sample."""
        if not callable(stream_from):
            raise InvalidArgument(
                f"stream_from is a {type(stream_from).__name__}, it must be a function of the first sample's number "
                "that returns the batches from there on; `submit` takes batches themselves"
            )
        if part is not None and part < 0:
            raise InvalidArgument(f"part is {part}, parts of a stream are numbered from 0")
        with self._submitter(job, part or 0) as instance:
            first = pb.SubmitRequest(job=job, part=part, instance=instance, stream=stream)
            call, opened = await repeated(lambda: self._open_submit(first), _OPENING_SECONDS)
            try:
                with domain_errors():
                    return await _send_stream(call, opened, stream_from)
            finally:
                call.cancel()

    @contextmanager
    def _submitter(self, job: str, part: int) -> Iterator[int]:
        """Lends the instance of a submitter: its next call takes over from a call that the dispatcher still has.

        Of two calls at the same time one gets another instance, and is refused.
        """
        instance = self._submitters.pop((job, part), 0) or secrets.randbits(64)
        try:
            yield instance
        finally:
            self._submitters[job, part] = instance

    async def _open_submit(self, first: pb.SubmitRequest) -> tuple[Any, pb.SubmitResponse]:
        """Opens a sample stream; returns the call, and the answer with the job's columns and number of samples."""
        call = self._stub.Submit()
        try:
            with domain_errors():
                return call, await _exchange(call, first)
        except BaseException:
            call.cancel()
            raise

    # --- of workers ----------------------------------------------------------------------------------------------

    async def register(self, registration: Registration, *, wait_for_job: float = 0.0) -> Lease:
        """Takes a worker slot."""
        # The dispatcher keeps the call open until a job begins, so that the workers need not ask for one every second.
        # Each call ends before its deadline, so a missed deadline means that the dispatcher hangs.
        request = encode_registration(registration, min(wait_for_job, self._timeout / 2, LONGEST_WAIT_SECONDS))
        if wait_for_job:
            call = repeated(lambda: self._ask_for_work(request), wait_for_job, on=(NotFound, *AWAY))
            return decode_lease(await call)
        return decode_lease(await self._repeated(self._stub.RegisterWorker, request))

    async def _ask_for_work(self, request: pb.RegisterWorkerRequest) -> pb.RegisterWorkerResponse:
        """Makes one attempt of many, and logs failures at intervals: a wrong setting looks like a long wait."""
        try:
            response: pb.RegisterWorkerResponse = await _answer(self._stub.RegisterWorker, request)
        except AWAY as error:
            if time.monotonic() - self._logged >= _LOG_SECONDS:
                self._logged = time.monotonic()
                _log.warning("the dispatcher at %s is out of reach and will be tried again: %s", self._address, error)
            raise
        return response

    async def put_group_key(self, lease: Lease, epoch: int, key: str, value: bytes) -> None:
        """Publishes a value that the all-reduce group of an epoch needs."""
        request = pb.PutGroupKeyRequest(lease_id=lease.lease_id, epoch=epoch, key=key, value=value)
        await self._repeated(self._stub.PutGroupKey, request)

    async def get_group_key(self, lease: Lease, epoch: int, key: str, *, within: float) -> bytes:
        """Reads a value that a member of the epoch publishes, and waits for it."""
        request = pb.GetGroupKeyRequest(lease_id=lease.lease_id, epoch=epoch, key=key)
        call = partial(self._stub.GetGroupKey, timeout=min(within, self._timeout))  # per attempt
        answer = await repeated(lambda: _answer(call, request), within, on=AWAY)
        return bytes(answer.value)

    def attend(
        self, lease: Lease, from_iteration: int = 0, *, phase: Callable[[], WorkerPhase] = idle
    ) -> AttendanceAside:
        """Takes part in one epoch. The stream and its heartbeats are in a thread of their own."""
        attendance = AttendanceAside(self._connect_again, lease, from_iteration, phase)
        self._attendances.add(attendance)
        return attendance

    def attend_here(
        self,
        lease: Lease,
        from_iteration: int = 0,
        *,
        phase: Callable[[], WorkerPhase] = idle,
        traffic: Traffic | None = None,
    ) -> Attendance:
        """Takes part in one epoch as `attend` does, in this event loop.

        It saves the way between two threads, and loses the lease where a step blocks the loop for longer than that.
        The messages of the stream pass `traffic`.
        """
        timeout, patience = self._timeout, self._patience
        return Attendance(
            self._attend, lease, from_iteration, phase, timeout=timeout, patience=patience, traffic=traffic
        )

    async def _repeated(self, method: Any, request: Any) -> Any:
        return await repeated(lambda: _answer(method, request), self._patience, on=AWAY)


async def _answer(method: Any, request: Any) -> Any:
    with domain_errors():
        return await method(request)


async def _send_stream(
    call: Any,
    opened: pb.SubmitResponse,
    stream_from: Callable[[Taken], AsyncIterable[SampleBatch] | Iterable[SampleBatch]],
) -> int:
    """Sends a sample stream from the position of an opened call to its end; returns the number of its samples."""
    source = decode_position(opened.source) if opened.HasField("source") else None
    position = Taken(opened.samples, source)
    columns = decode_columns(opened.columns) if opened.HasField("columns") else None
    async for batch in read_ahead(stream_from(position)):
        if not isinstance(batch, SampleBatch):
            raise InvalidArgument(f"the stream has a {type(batch).__name__}, expected esd.SampleBatch")
        arranged = batch if columns is None else batch.arranged(columns)
        for piece in in_messages(arranged, position, int(opened.longest_batch)):
            request = pb.SubmitRequest(batch=encode_batch(piece), position=position)
            position = Taken((await _exchange(call, request)).samples)
    ended = await _exchange(call, pb.SubmitRequest(end=True))
    await call.code()  # lets the call end in order
    return int(ended.samples)


async def _exchange(call: Any, request: pb.SubmitRequest) -> pb.SubmitResponse:
    """Sends one message and waits for its answer."""
    try:
        await call.write(request)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        # gRPC notices the end of a call before it has read the status, and reports an internal error meanwhile.
        for _ in range(_STATUS_LOOKS):
            if await call.details() != _NO_STATUS_YET:
                break
            await asyncio.sleep(_STATUS_PAUSE_SECONDS)
    response = await call.read()
    if not isinstance(response, pb.SubmitResponse):  # gRPC's mark of the end
        raise Unavailable("the dispatcher closed the sample stream before its end")
    return response
