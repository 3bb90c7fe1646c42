"""The dispatcher's client: domain objects in and out, domain errors raised."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar

from numpy.typing import ArrayLike

from esd.services.clients.attendance import Attendance, idle
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.hybrid import HybridResult
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import Criterion
from esd.services.domain.plans import PlanMessage
from esd.services.domain.reports import Lease, Registration, Report, WorkerPhase
from esd.services.domain.sources import Taken
from esd.services.domain.state import Evaluation, JobState
from esd.services.domain.watched import WatchedPlans
from esd.services.runtime.loop_thread import LoopThread
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES

T = TypeVar("T")

Run = Callable[[Coroutine[Any, Any, Any]], Any]  # runs a coroutine in the client's event loop, and waits for it


class DispatcherClient:
    """Calls one dispatcher; every method blocks until its answer arrives.

        with DispatcherClient("127.0.0.1:50051") as dispatcher:
            state = dispatcher.describe()

    All methods raise the errors of esd.services.domain.errors; Unavailable when the dispatcher cannot be reached,
    FailedPrecondition when the client is closed, or in a forked child of the process that made it. Several threads may
    use one client.
    `AsyncDispatcherClient` has the same methods for programs with an event loop; this client runs such a client in a
    thread of its own.

    Args:
        address: `host:port`.
        timeout: deadline of every call except the streams, in seconds.
        patience: seconds for which a worker's calls are repeated, and its stream is opened again, while the dispatcher
            is away. Each of these calls may safely be repeated.
        max_message_bytes: upper bound on a message, sent or received; give the dispatcher the same.
        credentials: for a dispatcher that uses TLS or asks for a token, such as
            `Credentials.load()`.
        caller: a name for the dispatcher's log.

    Example:
        >>> with esd.DispatcherClient("127.0.0.1:50051") as dispatcher:
        ...     dispatcher.hybrid_dis([[1, 5], [2, 9], [4, 4]], [2, 1]).assignment.tolist()
        [0, 0, 1]
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
        self._process = os.getpid()
        self._thread = LoopThread("esd-dispatcher-client")

        async def connect() -> AsyncDispatcherClient:
            return AsyncDispatcherClient(
                address,
                timeout=timeout,
                patience=patience,
                max_message_bytes=max_message_bytes,
                credentials=credentials,
                caller=caller,
            )

        self._client = self._run(connect())  # a channel belongs to the loop that it is made in

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection and ends open streams. The client cannot be used any more."""
        if self._thread.closed or os.getpid() != self._process:
            return
        self._run(self._client.close())
        self._thread.close()

    # --- of users and drivers ------------------------------------------------------------------------------------

    def hybrid_dis(
        self,
        costs: ArrayLike,
        capacities: ArrayLike,
        *,
        alpha: float = 1.0,
        criterion: Criterion = Criterion.MIN2_MIN,
        solver: str = "auto",
    ) -> HybridResult:
        """Assigns k samples to n workers (ESD Alg. 2), independent of any job.

        Args:
            costs: float32 or integers [k, n], finite, not negative; integers up to 2^31 - 1. k >= 1, 1 <= n <= 128.
            capacities: integers [n], not negative, sum k.
            alpha: share of each capacity that the exact solver fills, 0..1.
            criterion: the order in which rows of the costs go to the exact solver.
            solver: name of the exact solver.

        Raises:
            InvalidArgument: an argument violates a condition above.
        """
        return self._run(self._client.hybrid_dis(costs, capacities, alpha=alpha, criterion=criterion, solver=solver))

    def create_job(self, job: JobSpec) -> bool:
        """Opens a job. Returns False if exactly this job is open already.

        Raises:
            FailedPrecondition: another job is running.
        """
        return self._run(self._client.create_job(job))

    def cancel_job(self, job: str, reason: str) -> bool:
        """Ends a job. When it is opened again, it resumes at its last checkpoint.

        Args:
            job: name of the job.
            reason: a text for its workers, its driver and the readers of its state.

        Returns:
            False if the job had ended before.

        Raises:
            NotFound: no job of this name is running.
        """
        return self._run(self._client.cancel_job(job, reason))

    def record_evaluations(self, job: str, evaluations: Sequence[Evaluation]) -> None:
        """Records the quality of a job's model on held-out samples.

        The evaluations are part of the job's state, which also a restarted driver reads. An evaluation replaces an
        earlier one of the same iteration.

        Raises:
            NotFound: no job of this name exists.
            InvalidArgument: the labels are not the job's labels, or an iteration is not trained yet.
        """
        self._run(self._client.record_evaluations(job, evaluations))

    def describe(self) -> JobState | None:
        """Returns the state of the running or last job, None if there was none."""
        return self._run(self._client.describe())

    def describe_page(self, job: str) -> str:
        """Returns the document of a job's page, with the history of its figures, as JSON.

        The fields equal the fields of the page's /state.json; this call needs no page.

        Args:
            job: name of the job.

        Raises:
            NotFound: the running or last job has another name, or there was none.
        """
        return self._run(self._client.describe_page(job))

    def watch_plans(
        self, job: str, from_iteration: int | None = None, *, epoch: int | None = None, ids: bool = False
    ) -> Iterator[WatchedPlans]:
        """Yields the plans of all workers of a job, each once, in the order of their publication, until the job ends.

        After a recovery the plans of a higher epoch follow. A stream that breaks is opened again and resumes. The
        caller slows nothing down: if it reads too slowly, the stream ends with an error.

        Args:
            job: name of the job.
            from_iteration: the first iteration; None: the next that is planned.
            epoch: the epoch of that iteration; None: the present epoch.
            ids: whether the moves have the ids of their rows.

        Raises:
            NotFound: the running or last job has another name, or there was none.
            FailedPrecondition: plans that the caller has not read are no longer kept, or an earlier dispatcher
                published them; or the job failed.
            ResourceExhausted: 64 observers watch already.
            Unavailable: the dispatcher was away for longer than the client's patience.
        """
        plans = self._client.watch_plans(job, from_iteration, epoch=epoch, ids=ids)

        async def following() -> WatchedPlans | None:
            return await anext(plans, None)

        try:
            while (watched := self._run(following())) is not None:
                yield watched
        finally:
            if not self._thread.closed:
                self._run(plans.aclose())

    def submit(self, job: str, batches: Iterable[SampleBatch], *, part: int | None = None) -> int:
        """Sends the sample stream of a job, or the rest of it, and ends it. Returns the number of the job's samples.

        In a job of several submitters (`JobSpec.submitters`) each sends one part of the stream, and all that is said
        here of the stream and its samples holds for the part. The dispatcher merges the parts in fixed turns, so a
        batch is acknowledged when the other parts have sent theirs.

        The next batch is read only when the last one is acknowledged, so a slow job slows the source down. If the
        source raises or the call breaks, the stream stays open, and another call may continue it: one of this client
        at once, one of another client when the dispatcher has noticed the break, which takes it half a minute if the
        network falls silent.

        Samples with named columns (`SampleBatch.columns`, as of `esd.read`) are put into the order of the job's.

        Args:
            job: name of the job.
            batches: batches of any size, in training order.
            part: number of the part of the stream, from 0; None: the stream has only one.

        Raises:
            NotFound: no job of this name is running.
            InvalidArgument: the samples' columns cannot be matched to the job's by name; or the stream has no such
                part, or several, and none is named.
            FailedPrecondition: the stream has ended before; another call feeds it; or the job failed, and the
                message names the cause.
        """
        return self._run(self._client.submit(job, batches, part=part))

    def feed(
        self,
        job: str,
        stream_from: Callable[[Taken], Iterable[SampleBatch]],
        *,
        part: int | None = None,
        stream: str = "",
    ) -> int:
        """Sends a sample stream as `submit` does, from a source that can begin at any sample, such as after a crash.

        Args:
            job: name of the job.
            stream_from: called with the number of samples that the job has acknowledged before; returns the stream
                without them. The number has an attribute `source`, the place of the next sample in the stream's
                source, which `open` of `esd.read` takes; None if the samples before came without places.
            part: as of `submit`.
            stream: says which samples these are, in words that are the same for the same samples only, at most 1,000
                characters: a part of whose other samples the job has taken some is refused. Empty: the caller is
                responsible for it.
        """
        return self._run(self._client.feed(job, stream_from, part=part, stream=stream))

    # --- of workers ----------------------------------------------------------------------------------------------

    def register(self, registration: Registration, *, wait_for_job: float = 0.0) -> Lease:
        """Takes a worker slot. A worker that registers again under its name gets its old slot.

        Args:
            registration: name, link and cache of the worker.
            wait_for_job: seconds to wait for a dispatcher with a job.

        Raises:
            NotFound: no running job accepts workers.
            ResourceExhausted: all slots are taken.
        """
        return self._run(self._client.register(registration, wait_for_job=wait_for_job))

    def put_group_key(self, lease: Lease, epoch: int, key: str, value: bytes) -> None:
        """Publishes a value that the all-reduce group of an epoch needs, such as an address.

        Args:
            lease: of the worker.
            epoch: the epoch in which the worker trains.
            key: name of the value, 1 to 256 characters.
            value: any bytes.

        Raises:
            NotFound: the lease has expired.
            StaleEpoch: the epoch is over.
            ResourceExhausted: the keys of the epoch take more than 16 MiB.
        """
        self._run(self._client.put_group_key(lease, epoch, key, value))

    def get_group_key(self, lease: Lease, epoch: int, key: str, *, within: float) -> bytes:
        """Reads a value that a member of the epoch publishes, and waits for it.

        Args:
            lease: of the worker.
            epoch: the epoch in which the worker trains.
            key: name of the value.
            within: seconds to wait.

        Raises:
            NotFound: the lease has expired.
            StaleEpoch: the epoch is over.
            DeadlineExceeded: no member has published the value in time.
        """
        return self._run(self._client.get_group_key(lease, epoch, key, within=within))

    def attend(
        self, lease: Lease, from_iteration: int = 0, *, phase: Callable[[], WorkerPhase] = idle
    ) -> BlockingAttendance:
        """Takes part in one epoch, inside a `with` block.

        The first message is the epoch's Membership, then a Reload if the epoch begins at a checkpoint, then one
        IterationPlan per iteration with the FlushPlans of checkpoints between them, the last FlushPlan, and
        EndOfStream. Inside the block heartbeats keep the lease alive; a stream whose connection breaks is opened again
        and resumes.

        Args:
            lease: of the worker.
            from_iteration: the first wanted plan, after all confirmed plans; the epoch's first iteration if that is
                later.
            phase: returns the worker's phase, for each heartbeat; it must not block.
        """

        async def begin() -> Attendance:
            return await self._client.attend_here(lease, from_iteration, phase=phase).__aenter__()

        return BlockingAttendance(self._run(begin()), self._run)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != self._process:  # the thread of the loop is not in this process
            work.close()
            raise FailedPrecondition("this client was made before the process forked: make another one in the child")
        if self._thread.closed:
            work.close()
            raise FailedPrecondition("this client is closed; make another one")
        return self._thread.wait_for(work)


class BlockingAttendance:
    """A worker's part in one epoch, `esd.services.clients.attendance.Attendance` for programs without an event loop.

        with dispatcher.attend(lease) as attendance:
            for message in attendance:
                ...
                attendance.report(report)

    Iteration yields the dispatcher's messages, each once. It raises

    - StaleEpoch: the epoch is over. Attend again: the next epoch begins at the last checkpoint.
    - NotFound: the lease has expired.
    - Unavailable: the dispatcher was away for longer than the client's patience.
    - FailedPrecondition: the first wanted plan is already confirmed, or lies beyond the next plan to be made; or the
      job failed, and the message names the cause.
    """

    def __init__(self, attendance: Attendance, run: Run) -> None:
        self._attendance = attendance
        self._run = run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._attendance.aclose())

    def __iter__(self) -> Iterator[PlanMessage]:
        async def following() -> PlanMessage | None:
            return await anext(self._attendance, None)

        while (message := self._run(following())) is not None:
            yield message

    def report(self, report: Report) -> None:
        """Confirms a plan, or reports a failure of the worker; returns when the dispatcher has recorded it.

        A report may be repeated. It raises the errors of iteration, and

        Raises:
            StaleEpoch: the report's epoch, the epoch of its plan, is over; for a failure report this is no error.
            FailedPrecondition: the plan is not the worker's next plan.
            InvalidArgument: the report has another number of samples than the plan.
        """

        async def reported() -> None:
            await self._attendance.report(report)

        self._run(reported())
