"""What every RPC of every service gets: a check of who calls, errors as statuses, metrics, log context.

All of them are one context manager around the handler. For a streaming answer the block surrounds the iteration,
so an error in the middle of a stream is mapped like any other, and the measured time ends with the last message.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc

from services.domain.errors import PermissionDenied, Unauthenticated
from services.runtime import logs, metrics
from services.runtime.decoding import all_checked, checked, tolerant
from services.runtime.guard import Guard
from services.runtime.status import REASON_KEY, status_of

_log = logging.getLogger(__name__)

# Handlers of grpc.aio differ by the kind of answer only: (request or request iterator, context).
_Context = grpc.aio.ServicerContext[Any, Any]
_Handler = Callable[[Any, _Context], Any]
_Check = Callable[[Any, str], Any]  # of a request, or of the iterator of a stream's requests, by a method's name


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Surrounds every handler of a server with `_call`.

    Args:
        guard: decides who may call.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wraps the handler that the rest of the chain finds."""
        handler = await continuation(handler_call_details)
        if handler is None:  # gRPC answers UNIMPLEMENTED; the name is the peer's, so it is no label
            metrics.rpc_handled("unknown", grpc.StatusCode.UNIMPLEMENTED.name, 0.0)
            return handler
        return _wrapped(handler, handler_call_details.method, self._guard)


def _wrapped(handler: Any, method: str, guard: Guard) -> Any:
    codecs = tolerant(handler.request_deserializer), handler.response_serializer
    check = all_checked if handler.request_streaming else checked
    if handler.response_streaming:
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                _streaming(handler.stream_stream, check, method, guard), *codecs
            )
        return grpc.unary_stream_rpc_method_handler(_streaming(handler.unary_stream, check, method, guard), *codecs)
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(_single(handler.stream_unary, check, method, guard), *codecs)
    return grpc.unary_unary_rpc_method_handler(_single(handler.unary_unary, check, method, guard), *codecs)


def _single(handle: _Handler, check: _Check, method: str, guard: Guard) -> _Handler:
    async def surrounded(request: Any, context: _Context) -> Any:
        async with _call(method, context, guard):
            return await handle(check(request, method), context)

    return surrounded


def _streaming(handle: _Handler, check: _Check, method: str, guard: Guard) -> _Handler:
    async def surrounded(request: Any, context: _Context) -> AsyncIterator[Any]:
        async with _call(method, context, guard):
            answer = handle(check(request, method), context)
            if inspect.isawaitable(answer):  # a handler that calls context.write itself, as gRPC's health service
                await answer
                return
            async with aclosing(answer) as messages:
                async for message in messages:
                    yield message

    return surrounded


@asynccontextmanager
async def _call(method: str, context: _Context, guard: Guard) -> AsyncIterator[None]:
    logs.bind(method=method, peer=context.peer(), caller=_caller(context))
    started = time.perf_counter()
    code = grpc.StatusCode.OK
    try:
        guard.check(method, context.auth_context(), context.invocation_metadata() or ())
        yield
        code = context.code() or code
    except (asyncio.CancelledError, GeneratorExit):
        # The peer has gone or its deadline has passed: there is nobody to answer.
        code = grpc.StatusCode.DEADLINE_EXCEEDED if context.time_remaining() == 0 else grpc.StatusCode.CANCELLED
        raise
    except grpc.aio.AbortError:
        code = context.code()
        raise
    except Exception as error:  # noqa: BLE001 - the edge of the process: everything becomes a status
        status = status_of(error)
        code = status.code
        level = logging.WARNING if isinstance(error, Unauthenticated | PermissionDenied) else logging.INFO
        _log.log(level, "call refused: %s", status.details, extra={"code": code.name})
        await context.abort(code, status.details, ((REASON_KEY, status.reason),))
    finally:
        metrics.rpc_handled(method, code.name, time.perf_counter() - started)


def _caller(context: _Context) -> str:
    """Tells who calls, by what it says itself: what stands before the name and version that gRPC adds."""
    metadata = context.invocation_metadata() or ()
    return next((str(value).partition(" grpc-")[0] for key, value in metadata if key == "user-agent"), "")
