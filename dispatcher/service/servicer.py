"""The Dispatcher service of protos/dispatcher.proto: messages in, messages out, no decisions."""

# ruff: noqa: N802, ARG002 - names and arguments of the rpcs are the proto's
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from esd.dispatcher.core.hybrid import hybrid_dis
from esd.dispatcher.service.describe import job_state
from esd.dispatcher.service.hybrid_calls import HybridCalls
from esd.dispatcher.service.page_document import state_document
from esd.dispatcher.service.run.attend import attend
from esd.dispatcher.service.run.current_job import CurrentJob
from esd.dispatcher.service.run.group_keys import get_group_key, put_group_key
from esd.dispatcher.service.run.watch import Observers
from esd.dispatcher.service.state import job_metrics
from esd.dispatcher.solvers import open_solver
from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.state import JobState
from esd.services.runtime import metrics
from esd.services.runtime.tasks import run_in
from esd.services.wire.batches import OVERHEAD_BYTES, encode_position
from esd.services.wire.hybrid import encode_result
from esd.services.wire.jobs import decode_job, encode_columns
from esd.services.wire.reports import decode_registration, decode_wait, encode_lease
from esd.services.wire.state import decode_evaluation, encode_state
from esd.services.wire.watched import decode_watch_request

_Context = grpc.aio.ServicerContext[Any, Any]


SERVICE = pb.DESCRIPTOR.services_by_name["Dispatcher"].full_name


def add_to_server(servicer: dispatcher_pb2_grpc.DispatcherServicer, server: Any) -> None:
    """Adds the rpcs to a server of grpc.aio. Attend passes raw bytes; `services/wire/attend.py` gives the reason."""
    dispatcher_pb2_grpc.add_DispatcherServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    server.add_registered_method_handlers(SERVICE, {"Attend": grpc.stream_stream_rpc_method_handler(servicer.Attend)})


class DispatcherServicer(dispatcher_pb2_grpc.DispatcherServicer):
    """Decodes the calls of clients and workers, and passes them to the job.

    Args:
        current_job: the job that all calls but HybridDis address.
        solvers: the threads for HybridDis.
        hybrid_calls: bounds the costs of HybridDis.
        observers: serve WatchPlans.
    """

    def __init__(
        self,
        current_job: CurrentJob,
        solvers: ThreadPoolExecutor,
        hybrid_calls: HybridCalls,
        observers: Observers,
    ) -> None:
        self._current_job = current_job
        self._solvers = solvers
        self._hybrid_calls = hybrid_calls
        self._observers = observers

    async def HybridDis(
        self, request_iterator: AsyncIterator[pb.HybridDisRequest], context: _Context
    ) -> pb.HybridDisResponse:
        """Solves one cost matrix."""
        with self._hybrid_calls.place() as call:
            problem = await call.read(request_iterator)
            solver = open_solver(problem.solver, problem.costs.shape[1])
            result = await run_in(
                self._solvers, hybrid_dis, problem.costs, problem.capacities, problem.alpha, problem.criterion, solver
            )
        if len(result.optimal_rows):
            metrics.SOLVER_SECONDS.labels(result.solver).observe(result.seconds)
            job_metrics.certified(result.solver, result.gap)
        return encode_result(result)

    async def CreateJob(self, request: pb.CreateJobRequest, context: _Context) -> pb.CreateJobResponse:
        """Opens a job, or confirms the running one."""
        if not request.HasField("job"):
            raise InvalidArgument("job is not set")
        return pb.CreateJobResponse(created=await self._current_job.create(decode_job(request.job)))

    async def CancelJob(self, request: pb.CancelJobRequest, context: _Context) -> pb.CancelJobResponse:
        """Ends the running job."""
        return pb.CancelJobResponse(cancelled=self._current_job.cancel(request.job, request.reason))

    async def RegisterWorker(self, request: pb.RegisterWorkerRequest, context: _Context) -> pb.RegisterWorkerResponse:
        """Gives a slot to a worker, as soon as a job takes workers."""
        registration, seconds = decode_registration(request), decode_wait(request)
        job = await self._current_job.taking_workers(within=seconds)
        return encode_lease(job.register(registration))

    def Attend(self, request_iterator: AsyncIterator[bytes], context: _Context) -> AsyncIterator[bytes]:
        """Serves the stream of one worker."""
        return attend(self._current_job.get(), aiter(request_iterator))

    async def PutGroupKey(self, request: pb.PutGroupKeyRequest, context: _Context) -> pb.PutGroupKeyResponse:
        """Stores a value of one member of the epoch for the others."""
        put_group_key(self._current_job.get(), request.lease_id, request.epoch, request.key, request.value)
        return pb.PutGroupKeyResponse()

    async def GetGroupKey(self, request: pb.GetGroupKeyRequest, context: _Context) -> pb.GetGroupKeyResponse:
        """Waits for a value of a member of the epoch, and returns it."""
        job = self._current_job.get()
        value = await get_group_key(job, request.lease_id, request.epoch, request.key)
        return pb.GetGroupKeyResponse(value=value)

    async def Submit(
        self, request_iterator: AsyncIterator[pb.SubmitRequest], context: _Context
    ) -> AsyncIterator[pb.SubmitResponse]:
        """Accepts the sample stream, until a message marks its end."""
        requests = aiter(request_iterator)
        request = await anext(requests, None)
        if request is None or not request.job:
            raise InvalidArgument("job is not set in the first message")
        job = self._current_job.named(request.job)
        columns: pb.SampleColumns | None = encode_columns(job.spec.columns)
        # A recovery reads the log in answers, whose limit is the same for all services.
        longest_batch = min(job.settings.max_request_bytes, job.settings.max_message_bytes) - OVERHEAD_BYTES
        named = request.part if request.HasField("part") else None
        async with job.submission.submitter(named, request.instance, request.stream) as part:
            while request is not None:  # None: the call was cut off, and another call may continue
                if request.HasField("batch"):
                    position = request.position if request.HasField("position") else None
                    await job.submission.take_in(request.batch, position, part)
                if request.end:
                    await job.submission.end(part)
                taken = await job.submission.taken(part)
                yield pb.SubmitResponse(
                    samples=taken,
                    durable=job.submission.durable,
                    columns=columns,
                    longest_batch=longest_batch,
                    source=None if columns is None else encode_position(taken.source),
                )
                columns = None
                request = None if request.end else await anext(requests, None)

    async def RecordEvaluations(
        self, request: pb.RecordEvaluationsRequest, context: _Context
    ) -> pb.RecordEvaluationsResponse:
        """Stores a driver's evaluations on held-out samples."""
        job = self._current_job.named(request.job)
        job.evaluations.record(map(decode_evaluation, request.evaluations), trained=job.confirmed)
        return pb.RecordEvaluationsResponse()

    async def DescribeJob(self, request: pb.DescribeJobRequest, context: _Context) -> pb.DescribeJobResponse:
        """Returns the state of the latest job, which is absent before the first job.

        The call counts as a sign of life of the driver, since the caller may be the driver.
        """
        job = self._current_job.latest
        if job is not None:
            job.submission.seen()
        return pb.DescribeJobResponse(job=await asyncio.to_thread(_described, job_state(job)) if job else None)

    async def DescribePage(self, request: pb.DescribePageRequest, context: _Context) -> pb.DescribePageResponse:
        """Returns the document of the page."""
        document = await state_document(self._current_job.named(request.job))
        return pb.DescribePageResponse(json=document.decode())

    def WatchPlans(self, request: pb.WatchPlansRequest, context: _Context) -> AsyncIterator[pb.WatchPlansResponse]:
        """Streams the plans of all workers to an observer."""
        return self._observers.watch(self._current_job.named(request.job), decode_watch_request(request))


def _described(state: Callable[[], JobState]) -> pb.JobState:
    return encode_state(state())
