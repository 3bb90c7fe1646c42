"""The mapping between errors and gRPC statuses: one table for both directions.

A server sends the status code of the error's class and, in trailing metadata, the class's name as the reason. A client
rebuilds the class from this name through the table, so a peer can never choose a class to import.
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
    Loading,
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
        Loading: grpc.StatusCode.UNAVAILABLE,
        DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
        Internal: grpc.StatusCode.INTERNAL,
    }
)

_BY_REASON = {cls.__name__: cls for cls in CODES}
# Statuses without a reason come from gRPC itself. A code of several classes maps to the first of them.
_BY_CODE = {code: cls for cls, code in reversed(tuple(CODES.items()))}

# A service that does not know a call is another service: the caller has its address wrong.
_BY_CODE |= {grpc.StatusCode.UNIMPLEMENTED: FailedPrecondition}

# A peer that is stopped, resumes after the deadline or loses its connection in the middle of an answer cancels calls
# that no caller has cancelled. That is temporary, under each of gRPC's names for it.
_BY_CODE |= {grpc.StatusCode.CANCELLED: Unavailable, grpc.StatusCode.ABORTED: Unavailable}
_BROKEN_STREAM = ("RST_STREAM", "Stream removed", "Internal error from Core")  # none of our services sends these

# gRPC's texts when a limit stops a call, with our error and the setting of the limit.
_LIMITS: Mapping[str, tuple[type[EsdError], str]] = MappingProxyType(
    {
        "SERVER: Received message larger than max": (ResourceExhausted, "max_request_bytes"),
        "message larger than max": (ResourceExhausted, "max_message_bytes"),
    }
)

# The places of the settings that the errors of callers name.
_KNOBS = "esd has them as ESD_CLIENT_TLS_CA and so on, a service that calls as ESD_<SERVICE>_TLS_CA"

# The likely cause when a service refuses connections without a reason.
NO_AGREEMENT = f"both ends do not agree on TLS (tls_ca, tls_certificate and tls_key of the caller; {_KNOBS})"

# gRPC's text at a client whose server closes the connection at once, as a TLS server does with unacceptable peers.
_HUNG_UP = "Socket closed"

# gRPC's texts at a client after a failed handshake, with their meaning. A retry is of no use.
_HANDSHAKES: Mapping[str, str] = MappingProxyType(
    {
        "Hostname Verification Check failed": (
            "the service's certificate is not valid for the name or address in the caller's settings: use one in the "
            "certificate, or make a certificate with this name"
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

# gRPC's texts at a client that does not reach an address, with their meaning.
_UNREACHED = (
    (
        re.compile(
            r"failed to connect to all addresses; last error: \w+: ipv[46]:(?P<address>\S+): "
            r"(Failed to connect to remote host: )?(?P<cause>.+)"
        ),
        "no connection is accepted at {address}: {cause}; is the service up, and does it listen at this address?",
    ),
    (
        re.compile(r"errors resolving (?P<address>\S+): \[.*: (?P<cause>[^:]+)\]"),
        "the host of {address} is unknown: {cause}",
    ),
)

# Statuses travel in HTTP/2 headers, which gRPC limits to 8 KiB; percent-encoding may triple a byte.
_MAX_DETAILS_BYTES = 2000

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """The part of an error that a peer sees."""

    code: grpc.StatusCode
    details: str
    reason: str


def status_of(error: Exception) -> Status:
    """Returns the status of an error, by its most specific class in the table.

    An error outside the table is a defect of ours: it is logged with its traceback, and the peer gets a fixed text,
        since
    the original may contain data or paths that the peer must not see.
    """
    known = _known_class(error)
    if known is Internal:
        _log.error("internal error", exc_info=error)
        return Status(CODES[Internal], INTERNAL_TEXT, Internal.__name__)
    details = str(error).encode(errors="replace")[:_MAX_DETAILS_BYTES].decode(errors="ignore")
    return Status(CODES[known], details, known.__name__)


def code_of(error: Exception) -> grpc.StatusCode:
    """Returns the status code of an error, and logs nothing."""
    return CODES[_known_class(error)]


def _known_class(error: Exception) -> type[EsdError]:
    return next((cls for cls in type(error).__mro__ if cls in CODES), Internal)


def error_of(code: int, reason: str, details: str) -> EsdError:
    """Returns the domain error of a status that a peer sent in a message within a stream.

    Args:
        code: number of the gRPC status code.
        reason: name of the error's class.
        details: text of the error.
    """
    if reason in _BY_REASON:
        return _BY_REASON[reason](details)
    known = (cls for status, cls in _BY_CODE.items() if status.value[0] == code)
    return next(known, Internal)(details)


def error_from(rpc_error: grpc.aio.AioRpcError) -> EsdError:
    """Returns the domain error of a failed call: the error that the server raised, or a translation of gRPC's own."""
    details = rpc_error.details() or ""
    trailing: Any = rpc_error.trailing_metadata()  # a mapping, although the stubs declare a tuple
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
            "; if this continues, the service may require TLS (tls_ca of the caller) or a certificate that it trusts "
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
    """Returns a plainer text if gRPC's client did not reach an address; None if its text means something else."""
    for said, meaning in _UNREACHED:
        if found := said.fullmatch(details):
            return meaning.format(address=unquote(found["address"]), cause=found["cause"])
    return None


class Requests(Generic[T]):
    """The requests of a client's stream. It keeps the error of their source, which gRPC does not pass on.

    Args:
        source: yields the requests.

    Attributes:
        failure: the error that the source raised; None if it raised none.
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

    If a connection is reset while a client's stream is being written, grpc.aio itself cancels the call and every task
    that awaits it. Such a cancellation was not requested, so it must not end the task that made the call: it becomes
    Unavailable, like any other broken connection.

    Args:
        requests: the requests of the call inside the block; an error of their source is raised here.
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
