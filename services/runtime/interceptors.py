"""The common part of every RPC: access control, limit of concurrent calls, errors as statuses, metrics, log context.

All of it is one context manager around the handler. For a streaming answer the block surrounds the iteration, so an
error in the middle of a stream is mapped like any other, and the measured time ends with the last message.

gRPC would read the request of a call with a single request before it runs the handler. Here such a call is served like
one with a stream of requests, which looks the same on the wire: a call without access, or beyond the limit, is refused
before a byte of the message is read.

gRPC cancels the handler of a call whose peer has cancelled it, whose deadline has passed, or that a stopping server
ends; no caller waits for its answer then. gRPC treats every other CancelledError of a handler, such as one of a task
whose result the handler awaits, in the same way and sends nothing: the peer would wait until its deadline, or for ever.
Here such an error becomes a status.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import cache, partial
from typing import Any

import grpc

from esd.services.domain.errors import DeadlineExceeded, InvalidArgument, PermissionDenied, Unauthenticated, Unavailable
from esd.services.runtime import logs, metrics
from esd.services.runtime.call_limits import HEALTH_REQUEST_SECONDS, CallLimits, is_health
from esd.services.runtime.caller import bind_caller
from esd.services.runtime.decoding import all_checked, checked, tolerant
from esd.services.runtime.guard import Admit, Guard, Metadata
from esd.services.runtime.release import check_release
from esd.services.runtime.status import REASON_KEY, status_of
from esd.services.runtime.tasks import is_cancelled

GIVEN_UP_TEXT = "the service cancelled the work that the call waited for, which may be done or not; call again"

_log = logging.getLogger(__name__)

# Handlers of grpc.aio differ by the kind of answer only: (request or request iterator, context).
_Context = grpc.aio.ServicerContext[Any, Any]
_Handler = Callable[[Any, _Context], Any]
_Requests = AsyncIterator[Any]
_Surround = Callable[[_Context], AbstractAsyncContextManager[None]]
_Take = Callable[[_Requests, _Context], Awaitable[Any]]  # converts a call's requests to the handler's argument


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Surrounds every handler of a server with `_call`.

    Args:
        guard: admits or refuses callers.
        limits: bounds the number of concurrent calls.
    """

    def __init__(self, guard: Guard, limits: CallLimits) -> None:
        self._guard = guard
        self._limits = limits
        self._handlers: dict[str, Any] = {}  # wrapped handlers, by method

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Returns the wrapped handler of a method, which is made at its first call."""
        method = handler_call_details.method
        if method in self._handlers:
            return self._handlers[method]
        handler = await continuation(handler_call_details)
        if handler is None:  # gRPC answers UNIMPLEMENTED; the name is the peer's, so it is no label
            _count("unknown", grpc.StatusCode.UNIMPLEMENTED.name, 0.0)
            return handler
        return self._handlers.setdefault(method, self._wrapped(handler, method))

    def _wrapped(self, handler: Any, method: str) -> Any:
        codecs = tolerant(handler.request_deserializer), handler.response_serializer
        take = _all_requests(method, codecs[0]) if handler.request_streaming else _only_request(method)
        surround = partial(self._call, method, self._guard.of(method))
        if handler.response_streaming:
            handle = handler.stream_stream if handler.request_streaming else handler.unary_stream
            return grpc.stream_stream_rpc_method_handler(_streaming(handle, take, surround), *codecs)
        handle = handler.stream_unary if handler.request_streaming else handler.unary_unary
        return grpc.stream_unary_rpc_method_handler(_single(handle, take, surround), *codecs)

    @asynccontextmanager
    async def _call(self, method: str, admit: Admit, context: _Context) -> AsyncIterator[None]:
        peer, metadata = context.peer(), tuple(context.invocation_metadata() or ())
        agent = _user_agent(metadata)
        logs.bind(method=method, peer=peer, caller=agent.partition(" ")[0])
        started = time.perf_counter()
        code = grpc.StatusCode.OK
        try:
            bind_caller(admit(context, metadata))
            check_release(agent)
            self._limits.take(method, peer)
            try:
                yield
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                _log.warning("the work that the call waited for was cancelled, but not the call", exc_info=True)
                raise Unavailable(GIVEN_UP_TEXT) from None
            finally:
                self._limits.leave(method, peer)
            code = context.code() or code
        except (asyncio.CancelledError, GeneratorExit):
            # The peer has gone or its deadline has passed: no caller waits for the answer.
            code = grpc.StatusCode.DEADLINE_EXCEEDED if context.time_remaining() == 0 else grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.AbortError:
            code = context.code()
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of the process: any error becomes a status
            status = status_of(error)
            code = status.code
            level = logging.WARNING if isinstance(error, Unauthenticated | PermissionDenied) else logging.INFO
            _log.log(level, "call refused: %s", status.details, extra={"code": code.name})
            await context.abort(code, status.details, ((REASON_KEY, status.reason),))
        finally:
            _count(method, code.name, time.perf_counter() - started)


def _count(method: str, code: str, seconds: float) -> None:
    """Counts one ended call: full method name, status code name, time in its handler."""
    handled, duration = _metrics_of(method, code)
    handled.inc()
    duration.observe(seconds)


@cache  # bounded: served methods times status codes
def _metrics_of(method: str, code: str) -> tuple[Any, Any]:
    return metrics.RPCS_HANDLED.labels(method, code), metrics.RPC_SECONDS.labels(method)


def _single(handle: _Handler, take: _Take, surround: _Surround) -> _Handler:
    """Surrounds a handler with a single answer."""

    async def surrounded(requests: _Requests, context: _Context) -> Any:
        async with surround(context):
            return await handle(await take(requests, context), context)

    return surrounded


def _streaming(handle: _Handler, take: _Take, surround: _Surround) -> _Handler:
    """Surrounds a handler with a stream of answers."""

    async def surrounded(requests: _Requests, context: _Context) -> AsyncIterator[Any]:
        async with surround(context):
            answer = handle(await take(requests, context), context)
            if inspect.isawaitable(answer):  # a handler that calls context.write itself, as gRPC's health service
                await answer
                return
            async with aclosing(answer) as messages:
                async for message in messages:
                    yield message

    return surrounded


def _all_requests(method: str, deserialize: Callable[[bytes], Any] | None) -> _Take:
    """Returns the conversion for a stream of requests: each is checked on arrival, unless it is passed as bytes."""

    async def take(requests: _Requests, _: _Context) -> _Requests:
        return requests if deserialize is None else all_checked(requests, method)

    return take


def _only_request(method: str) -> _Take:
    """Returns the conversion for a single request; for a health call, which any client may open, with a time limit."""
    seconds = HEALTH_REQUEST_SECONDS if is_health(method) else None

    async def take(_: _Requests, context: _Context) -> Any:
        request = await context.read()
        if request is grpc.aio.EOF:  # type: ignore[attr-defined]  # missing in the stubs only
            raise InvalidArgument(f"a call of {method} ended before its request arrived")
        return checked(request, method)

    async def take_in_time(requests: _Requests, context: _Context) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await take(requests, context)
        except TimeoutError:
            raise DeadlineExceeded(f"the request of {method} did not arrive within {seconds:g} s") from None

    return take if seconds is None else take_in_time


def _user_agent(metadata: Metadata) -> str:
    """Returns the user agent of a caller: its name, its release, and its version of gRPC."""
    return next((str(value) for key, value in metadata if key == "user-agent"), "")
