"""The dispatcher, as a worker uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from protos import dispatcher_pb2, dispatcher_pb2_grpc
from services.domain.errors import DeadlineExceeded, NotFound, StaleEpoch, Unavailable
from services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership, PlanMessage, Reload
from services.domain.reports import Lease, Registration, Report, Trouble, WorkerPhase
from services.runtime.channel import channel
from services.runtime.retry import repeated
from services.runtime.security import Credentials
from services.runtime.status import domain_errors
from services.wire.plans import decode_plan_message
from services.wire.reports import decode_lease, encode_heartbeat, encode_registration, encode_report

_CALL_SECONDS = 10.0  # for calls that the dispatcher answers at once
_RECONNECT_SECONDS = 0.2
_AWAY = (Unavailable, DeadlineExceeded)  # the latter where packets are lost: nobody says that the link is cut


class Dispatcher:
    """Calls to the dispatcher: `register` first, then the others under the lease it brings."""

    def __init__(
        self, address: str, max_message_bytes: int, retry_timeout: float, credentials: Credentials, caller: str
    ) -> None:
        """Opens a channel, which `close` closes.

        Args:
            address: `host:port`.
            max_message_bytes: of one gRPC message.
            retry_timeout: seconds to try again while the dispatcher is unavailable.
            credentials: of this worker.
            caller: its name, for the dispatcher's log.
        """
        self._retry_timeout = retry_timeout
        self._channel = channel(address, max_message_bytes, credentials=credentials, caller=caller)
        self._stub = dispatcher_pb2_grpc.DispatcherStub(self._channel)  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close(None)

    async def register(self, registration: Registration, patience: float) -> None:
        """Takes a place in the job. Waits up to `patience` seconds for a dispatcher that has a job."""
        request = encode_registration(registration)

        async def register() -> Lease:
            with domain_errors():
                return decode_lease(await self._stub.RegisterWorker(request, timeout=_CALL_SECONDS))

        self._lease = await repeated(register, patience, on=(NotFound, *_AWAY))
        self._epoch = 0

    async def tell(self, trouble: Trouble) -> None:
        """Tells that this worker cannot go on in an epoch.

        Raises:
            NotFound: the lease has expired.
            FailedPrecondition: the job has failed.
        """

        async def tell() -> None:
            with domain_errors():
                await self._stub.Heartbeat(encode_heartbeat(self._lease.lease_id, trouble), timeout=_CALL_SECONDS)

        await repeated(tell, self._retry_timeout, on=_AWAY)

    async def keep_alive(self, phase: Callable[[], WorkerPhase]) -> None:
        """Sends heartbeats until it is cancelled, each with what the worker is doing.

        Raises:
            NotFound: the lease has expired.
            FailedPrecondition: the job has failed.
        """

        async def heartbeat() -> None:
            request = encode_heartbeat(self._lease.lease_id, None, phase())
            with domain_errors():
                await self._stub.Heartbeat(request, timeout=_CALL_SECONDS)

        while True:
            await repeated(heartbeat, self._retry_timeout, on=_AWAY)
            await asyncio.sleep(self._lease.heartbeat_seconds / 2)

    async def report(self, report: Report) -> None:
        """Confirms an iteration, or the flush."""
        request = encode_report(self._lease.lease_id, report)

        async def send() -> None:
            with domain_errors():
                await self._stub.Report(request, timeout=_CALL_SECONDS)

        await repeated(send, self._retry_timeout, on=_AWAY)

    async def watch(self) -> AsyncGenerator[PlanMessage]:
        """One epoch: membership, perhaps a reload, plans in order, flush plans, end.

        Goes on after a broken connection.

        Raises:
            FailedPrecondition: the job has failed.
            StaleEpoch: the epoch is over; watch again for the next one.
            Unavailable: the dispatcher is away for longer than the retry timeout.
        """
        clock = asyncio.get_running_loop().time
        away_since: float | None = None
        seen = _Seen()
        while True:
            opened = clock()
            try:
                async with aclosing(self._watch_from(seen.next_iteration)) as messages:
                    async for message in messages:
                        away_since = None
                        if not seen.is_new(message):
                            continue  # the connection was broken
                        if isinstance(message, Membership):
                            self._epoch = message.epoch
                        yield message
                        if isinstance(message, EndOfStream):
                            return
                raise Unavailable("the dispatcher broke off the plan stream")
            except Unavailable:
                if away_since is None or clock() - opened > _CALL_SECONDS:  # it was there meanwhile, and had no news
                    away_since = clock()
                if clock() - away_since > self._retry_timeout:
                    raise
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _watch_from(self, from_iteration: int) -> AsyncGenerator[PlanMessage]:
        request = dispatcher_pb2.WatchPlansRequest(
            lease_id=self._lease.lease_id, from_iteration=from_iteration, epoch=self._epoch
        )
        with domain_errors():
            async for message in self._stub.WatchPlans(request):
                yield decode_plan_message(message)


class _Seen:
    """What of an epoch's plan stream has come already."""

    def __init__(self) -> None:
        self.next_iteration = 0
        self._membership: Membership | None = None
        self._reloaded = False
        self._checkpoint = -1

    def is_new(self, message: PlanMessage) -> bool:
        """Whether a message comes for the first time. Raises StaleEpoch when it opens another epoch."""
        match message:
            case Membership():
                return self._is_new_membership(message)
            case Reload():
                new, self._reloaded = not self._reloaded, True
                return new
            case FlushPlan() if message.checkpoint:
                new = message.iteration > self._checkpoint
                self._checkpoint = message.iteration
                return new
            case IterationPlan():
                self.next_iteration = message.iteration + 1
        return True

    def _is_new_membership(self, message: Membership) -> bool:
        if self._membership is None:
            self._membership, self.next_iteration = message, message.iteration
            return True
        if message != self._membership:
            raise StaleEpoch(f"epoch {self._membership.epoch} is over, epoch {message.epoch} has begun")
        return False
