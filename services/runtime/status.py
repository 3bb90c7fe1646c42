"""Errors on the wire: one table, both directions.

A server sends the status code of the error's class and, in trailing metadata, the class's name as the reason.
A client rebuilds the class from that name, looked up in the table: a peer can never choose what gets imported.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import grpc

from esd.services.domain.errors import (
    DeadlineExceeded,
    EsdError,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    Overloaded,
    PermissionDenied,
    ResourceExhausted,
    StaleEpoch,
    StaleVersion,
    StorageUnwritable,
    Unauthenticated,
    Unavailable,
)
from esd.services.runtime.tasks import is_cancelled

REASON_KEY = "esd-reason"
INTERNAL_TEXT = "internal error; the log of the service that failed has the details"

CODES: Mapping[type[EsdError], grpc.StatusCode] = MappingProxyType(
    {
        InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
        NotFound: grpc.StatusCode.NOT_FOUND,
        FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
        StaleVersion: grpc.StatusCode.FAILED_PRECONDITION,
        StaleEpoch: grpc.StatusCode.FAILED_PRECONDITION,
        Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
        ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
        StorageUnwritable: grpc.StatusCode.RESOURCE_EXHAUSTED,
        Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
        PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
        Unavailable: grpc.StatusCode.UNAVAILABLE,
        DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
        Internal: grpc.StatusCode.INTERNAL,
    }
)

_BY_REASON = {cls.__name__: cls for cls in CODES}
# Statuses without a reason come from gRPC itself. A code that stands for several classes means the first.
_BY_CODE = {code: cls for cls, code in reversed(tuple(CODES.items()))}

# A call that a service does not know is another service's: somebody has taken one address for the other.
_BY_CODE |= {grpc.StatusCode.UNIMPLEMENTED: FailedPrecondition}

# A peer that is stopped, wakes up after the deadline or loses its connection in the middle of an answer gives up calls
# that nobody has cancelled. That passes, whatever gRPC calls it.
_BY_CODE |= {grpc.StatusCode.CANCELLED: Unavailable, grpc.StatusCode.ABORTED: Unavailable}
_BROKEN_STREAM = ("RST_STREAM", "Stream removed", "Internal error from Core")  # details that no service of ours sends

# What gRPC says when one of our limits stops a call, what that means to the caller, and the setting behind it.
_LIMITS: Mapping[str, tuple[type[EsdError], str]] = MappingProxyType(
    {
        "SERVER: Received message larger than max": (ResourceExhausted, "max_request_bytes"),
        "message larger than max": (ResourceExhausted, "max_message_bytes"),
    }
)

# Where a caller finds the settings that its errors name.
_KNOBS = "esd has them as ESD_CLIENT_TLS_CA and so on, a service that calls as ESD_<SERVICE>_TLS_CA"

# What may be the matter with a service that refuses connections without saying why.
NO_AGREEMENT = f"both ends do not agree on TLS (tls_ca, tls_certificate and tls_key of the caller; {_KNOBS})"

# What gRPC's client says when a server hangs up on it at once, as one with TLS does on peers that it does not like.
_HUNG_UP = "Socket closed"

# What gRPC's client says when a handshake fails, and what that means. There is no use in trying again.
_HANDSHAKES: Mapping[str, str] = MappingProxyType(
    {
        "Hostname Verification Check failed": (
            "the service's certificate is not valid for the name or address by which the caller reaches it: call it by "
            "one that it has, or make it a certificate with this one"
        ),
        "CERTIFICATE_VERIFY_FAILED": (
            "the service's certificate is not valid now (expired, or a clock is wrong), or tls_ca of the caller is not "
            f"the authority that has signed it ({_KNOBS})"
        ),
        "WRONG_VERSION_NUMBER": (
            "the caller uses TLS and the service does not: give the service tls_certificate and tls_key, or the caller "
            f"no tls_ca ({_KNOBS})"
        ),
        "Tls handshake failed": NO_AGREEMENT,
    }
)

# What gRPC's client says of an address that it does not reach, and what that means.
_UNREACHED = (
    (
        re.compile(
            r"failed to connect to all addresses; last error: \w+: ipv[46]:(?P<address>\S+): "
            r"(Failed to connect to remote host: )?(?P<cause>.+)"
        ),
        "nobody takes connections at {address}: {cause}; is the service up, and does it listen at this address?",
    ),
    (
        re.compile(r"errors resolving (?P<address>\S+): \[.*: (?P<cause>[^:]+)\]"),
        "nobody knows the host of {address}: {cause}",
    ),
)

# Statuses travel in HTTP/2 headers, which gRPC limits to 8 KiB; percent-encoding may triple a byte.
_MAX_DETAILS_BYTES = 2000

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """What a peer gets to see of an error."""

    code: grpc.StatusCode
    details: str
    reason: str


def status_of(error: Exception) -> Status:
    """Returns the status of an error, by the most specific class of the table that it belongs to.

    Anything outside the table is a defect of ours: it is logged with its traceback, and the peer gets a fixed
    text, since the original may hold data or paths that are not the peer's business.
    """
    known = next((cls for cls in type(error).__mro__ if cls in CODES), Internal)
    if known is Internal:
        _log.error("internal error", exc_info=error)
        return Status(CODES[Internal], INTERNAL_TEXT, Internal.__name__)
    details = str(error).encode(errors="replace")[:_MAX_DETAILS_BYTES].decode(errors="ignore")
    return Status(CODES[known], details, known.__name__)


def error_of(code: int, reason: str, details: str) -> EsdError:
    """Returns the domain error that a peer has named in a message: a status within a stream.

    Args:
        code: number of the gRPC status code.
        reason: name of the error's class.
        details: the text.
    """
    if reason in _BY_REASON:
        return _BY_REASON[reason](details)
    known = (cls for status, cls in _BY_CODE.items() if status.value[0] == code)
    return next(known, Internal)(details)


def error_from(rpc_error: grpc.aio.AioRpcError) -> EsdError:
    """Returns the domain error that a failed call stands for: the one the server raised, or gRPC's own translated."""
    details = rpc_error.details() or ""
    trailing: Any = rpc_error.trailing_metadata()  # a mapping, though the stubs have it as a tuple
    reason = trailing.get(REASON_KEY)
    if reason in _BY_REASON:
        return _BY_REASON[reason](details)
    for text, (cls, limit) in _LIMITS.items():
        if text in details:
            return cls(f"{details}; the limit is {limit} of the service (ESD_<SERVICE>_{limit.upper()})")
    for text, meaning in _HANDSHAKES.items():
        if text in details:
            return Unauthenticated(f"{details}; {meaning}")
    code = rpc_error.code()
    if _HUNG_UP in details and code is grpc.StatusCode.UNAVAILABLE:
        details += (
            "; if it goes on, the service may want TLS (tls_ca of the caller) or a certificate that it trusts "
            f"(tls_certificate and tls_key; {_KNOBS})"
        )
    if unreached := _unreached(details):
        return Unavailable(unreached)
    if any(text in details for text in _BROKEN_STREAM):
        return Unavailable(f"the connection broke in the middle of a call: {details}")
    if code in _BY_CODE:
        return _BY_CODE[code](details or code.name)
    return Internal(f"the peer answered {code.name}: {details}")


def _unreached(details: str) -> str | None:
    """Returns what it means that gRPC's client has not reached an address; None if it does not say so."""
    for said, meaning in _UNREACHED:
        if found := said.fullmatch(details):
            return meaning.format(address=unquote(found["address"]), cause=found["cause"])
    return None


class Requests(Generic[T]):
    """The requests of a client's stream. It remembers what their source raised, which gRPC keeps to itself.

    Args:
        source: yields the requests.

    Attributes:
        failure: what the source raised; None while it goes well.
    """

    def __init__(self, source: AsyncIterator[T]) -> None:
        self.failure: Exception | None = None
        self._source = source

    async def __aiter__(self) -> AsyncIterator[T]:
        try:
            async for request in self._source:
                yield request
        except Exception as error:
            self.failure = error
            raise


@contextmanager
def domain_errors(requests: Requests[Any] | None = None) -> Iterator[None]:
    """Turns failed calls inside the block into domain errors, whether awaited or iterated.

        with domain_errors():
            async for chunk in stub.Scan(request, timeout=30):
                ...

    A connection that is reset while a client's stream is written makes grpc.aio cancel the call by itself, and whoever
    awaits it. Nobody has asked for that, so it must not end the task that made the call, as its own cancellation would:
    it is Unavailable, like any other broken connection.

    Args:
        requests: those of the call inside the block; what their source raised is raised here.
    """
    try:
        yield
    except grpc.aio.AioRpcError as rpc_error:
        raise error_from(rpc_error) from rpc_error
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        if requests is not None and requests.failure is not None:
            raise requests.failure from None
        raise Unavailable("the connection broke while a request was written") from None
