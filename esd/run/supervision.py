"""Services that die are started again, as often as a run allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from esd.run.events import Listener, ServiceNotReady, ServiceRestarted, ignore
from esd.run.services import ServiceFailed, ServiceProcess
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import Unavailable
from esd.services.domain.state import JobPhase
from esd.services.runtime.retry import AWAY

_FIRST_PAUSE_SECONDS = 1.0  # before a second start in a row, and twice as long before each further one
_LONGEST_PAUSE_SECONDS = 15.0
_POLL_SECONDS = 0.25  # of a dispatcher that is away or has no job

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Starts the services of a cluster again when they die.

    Attributes:
        servers: the parameter servers, and the store that the cluster has of its own.
        dispatcher: the cluster's dispatcher.
        workers: the workers. A worker that ends without an error is done only if the job is over: SIGTERM may have
            stopped it, or a model may have ended its process.
        job_is_over: returns whether the job of the dispatcher has ended; waits while the dispatcher cannot know.
    """

    servers: Sequence[ServiceProcess]
    dispatcher: ServiceProcess
    workers: Sequence[ServiceProcess]
    job_is_over: Callable[[], Awaitable[bool]]

    @property
    def services(self) -> list[ServiceProcess]:
        """All services, in the order in which they stop."""
        return [*self.workers, self.dispatcher, *self.servers]

    async def see_through(self, work: Coroutine[Any, Any, T], restarts: int, listener: Listener = ignore) -> T:
        """Returns the result of `work`, and supervises the services until it is there.

        Raises:
            ServiceFailed: a service has died too often; the work is cancelled.
        """
        working = asyncio.create_task(work)
        failure = asyncio.create_task(self.supervise(restarts, listener))
        try:
            await asyncio.wait({working, failure}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise failure.result()
            return working.result()
        finally:
            for task in (working, failure):
                task.cancel()
            await asyncio.gather(working, failure, return_exceptions=True)

    async def supervise(self, restarts: int, listener: Listener = ignore) -> ServiceFailed:
        """Starts services that die again; returns the failure of the one that has died too often.

        Each service is looked after by itself, so that one that takes long to start keeps no other waiting. A start
        that fails counts as a restart, too, and is followed by another one after a pause.

        Args:
            restarts: how many restarts there may be, over all services.
            listener: gets `ServiceRestarted` for each, and `ServiceNotReady`.
        """

        def left() -> int:
            return restarts - sum(service.restarts for service in self.services)

        keepers = {asyncio.create_task(self._keep_running(service, left, listener)) for service in self.services}
        try:
            while keepers:
                done, keepers = await asyncio.wait(keepers, return_when=asyncio.FIRST_COMPLETED)
                for keeper in done:
                    failure = keeper.result()
                    if failure is not None:
                        return failure
            await asyncio.Event().wait()  # all workers are done and well
            raise AssertionError("unreachable")
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _keep_running(
        self, service: ServiceProcess, left: Callable[[], int], listener: Listener
    ) -> ServiceFailed | None:
        """Starts one service again whenever it dies. Returns None when a worker is done."""
        pauses = pauses_between_restarts()
        while True:
            code = await service.process.wait()
            if code == 0 and service in self.workers and await self.job_is_over():
                return None
            if left() <= 0:
                return service.failure()
            pause = next(pauses)
            listener(ServiceRestarted(service.name, code, pause))
            service.restarts += 1  # before the pause, so that two services never share the last one
            await asyncio.sleep(pause)
            try:
                await service.restart()
            except ServiceFailed:
                continue  # its end is what the next round begins with
            except Unavailable as error:
                listener(ServiceNotReady(str(error)))
                await service.stop()
                continue
            pauses = pauses_between_restarts()


async def job_is_over(dispatcher: str) -> bool:
    """Asks a dispatcher whether its job has ended, which it knows before the workers do.

    A dispatcher that has just been started again has no job until the driver gives it the job again, so this waits; it
    ends with the run at the latest.

    Args:
        dispatcher: `host:port`.
    """
    async with AsyncDispatcherClient(dispatcher) as client:
        while True:
            try:
                state = await client.describe()
            except AWAY:
                state = None
            if state is not None:
                return state.phase in (JobPhase.FINISHED, JobPhase.FAILED)
            await asyncio.sleep(_POLL_SECONDS)


def pauses_between_restarts() -> Iterator[float]:
    """Yields the seconds to wait before a service is started once more: none at first, then longer ones.

    A service that it needs, such as Redis, may be away, too, and come back meanwhile.
    """
    yield 0.0
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
