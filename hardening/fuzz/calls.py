"""One malformed call, and the fault of its answer."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

import grpc

from esd.services.runtime.status import REASON_KEY
from hardening.fuzz.messages import Request

DEADLINE_SECONDS = 0.3  # for calls that may rightly wait for something that malformed requests never bring
PATIENCE_SECONDS = 20.0  # for all others: the machine may be busy, the service may not hang
_MOST_ANSWERS = 20  # read of a streaming answer

_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_INTERNAL_TEXT = re.compile(
    r"Traceback|File \"|\.py\b|/(usr|home|root|tmp|work|var)/|object at 0x|<class|Exception|Error\b"
)


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC.

    Attributes:
        path: `/esd.v1.Service/Method`.
        client_streaming: whether the caller sends a stream.
        server_streaming: whether the answer is one.
        waits: it may wait until the call's deadline.
        may_be_unavailable: it asks other services, at addresses that the request names.
    """

    path: str
    client_streaming: bool
    server_streaming: bool
    waits: bool = False
    may_be_unavailable: bool = False


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call ended, and whether the service itself said so."""

    code: grpc.StatusCode
    text: str
    reasoned: bool


def call(channel: grpc.Channel, method: Method, request: Request) -> CallResult:
    """Sends a request as it is, byte by byte, and reads the answer."""
    kind = ("stream" if method.client_streaming else "unary") + "_" + ("stream" if method.server_streaming else "unary")
    send = getattr(channel, kind)(method.path)
    timeout = DEADLINE_SECONDS if method.waits else PATIENCE_SECONDS
    try:
        answer = send(iter(request) if method.client_streaming else request[0], timeout=timeout)
        if method.server_streaming:
            for _ in itertools.islice(answer, _MOST_ANSWERS):
                pass
            answer.cancel()
    except grpc.RpcError as error:
        reasoned = any(datum.key == REASON_KEY for datum in error.trailing_metadata() or ())
        return CallResult(error.code(), error.details() or "", reasoned)
    return CallResult(grpc.StatusCode.OK, "", reasoned=True)


def tells_too_much(text: str) -> bool:
    """Returns whether a text reveals details of the source or of this machine."""
    return _INTERNAL_TEXT.search(text) is not None


def fault(method: Method, answer: CallResult) -> str | None:
    """Returns the fault of an answer to a malformed request, None if it has none."""
    if tells_too_much(answer.text):
        return f"{method.path} tells too much: {answer.text!r}"
    if answer.code is grpc.StatusCode.DEADLINE_EXCEEDED and (answer.reasoned or method.waits):
        return None
    if answer.code is grpc.StatusCode.UNAVAILABLE and answer.reasoned and method.may_be_unavailable:
        return None
    if answer.code is grpc.StatusCode.OK or answer.code in _REFUSALS:
        return None
    return f"{method.path} answers {answer.code.name}: {answer.text!r}"
