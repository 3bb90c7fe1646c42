"""The plans of all workers for an observer, over a stream that outlives its connections."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import NotFound
from esd.services.domain.watched import WatchedPlans
from esd.services.runtime.retry import AWAY, Backoff
from esd.services.runtime.status import domain_errors
from esd.services.wire.watched import JoinedPlans, WatchRequest, encode_watch_request

OpenWatch = Callable[[pb.WatchPlansRequest], Any]  # begins a call of WatchPlans


async def watched_plans(open_watch: OpenWatch, request: WatchRequest, patience: float) -> AsyncGenerator[WatchedPlans]:
    """Yields the plans of a job, each once, in order. A stream that breaks is opened again, and resumes.

    Args:
        open_watch: begins a call of WatchPlans.
        request: the first wanted plans.
        patience: seconds for which a stream is opened again while the dispatcher is away.
    """
    backoff = Backoff(patience)
    seen: tuple[int, int, int] | None = None
    while True:
        call, joined = open_watch(encode_watch_request(request)), JoinedPlans()
        try:
            while (plans := await _next_of(call, joined)) is not None:
                backoff.reset()
                if seen is None or plans.position > seen:  # a stream resumes at the beginning of an iteration
                    seen = plans.position
                    request = replace(request, epoch=plans.epoch, from_iteration=plans.iteration)
                    yield plans
            return
        except AWAY as error:
            await backoff.pause(error)
        except NotFound as error:  # a dispatcher that was started again does not know its job yet
            if seen is None:
                raise
            await backoff.pause(error)
        finally:
            call.cancel()


async def _next_of(call: Any, joined: JoinedPlans) -> WatchedPlans | None:
    """Reads the messages of the next plans. Returns None at the end of the stream."""
    while True:
        with domain_errors():
            message = await call.read()
        if not isinstance(message, pb.WatchPlansResponse):  # gRPC's mark of the end
            return None
        if (plans := joined.add(message)) is not None:
            return plans
