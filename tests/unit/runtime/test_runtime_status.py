"""The table of errors on the wire is complete, and both directions agree."""

import inspect
import logging
from collections.abc import Iterator

import grpc
import pytest

from esd.services.domain import errors
from esd.services.domain.errors import (
    DeadlineExceeded,
    EsdError,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    Overloaded,
    ResourceExhausted,
    Unavailable,
)
from esd.services.runtime.retry import AWAY
from esd.services.runtime.status import CODES, INTERNAL_TEXT, REASON_KEY, domain_errors, error_from, status_of


def subclasses(cls: type[EsdError]) -> Iterator[type[EsdError]]:
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


def rpc_error(code: grpc.StatusCode, details: str, reason: str | None = None) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata() if reason is None else grpc.aio.Metadata((REASON_KEY, reason))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details)


def test_every_error_of_the_domain_is_in_the_table() -> None:
    declared = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, EsdError)}
    assert set(CODES) == declared - {EsdError}


def test_no_two_errors_share_a_reason() -> None:
    names = [cls.__name__ for cls in CODES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("cls", CODES)
def test_an_error_comes_back_as_its_own_class(cls: type[EsdError]) -> None:
    status = status_of(cls("rows is 0, it must be positive"))
    rebuilt = error_from(rpc_error(status.code, status.details, status.reason))
    assert type(rebuilt) is cls
    assert str(rebuilt) == (INTERNAL_TEXT if cls is Internal else "rows is 0, it must be positive")


def test_a_subclass_that_the_table_does_not_know_travels_as_its_parent() -> None:
    class BadLine(InvalidArgument):
        """Line 7 is malformed."""

    status = status_of(BadLine("line 7"))
    assert (status.code, status.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "InvalidArgument")


def test_every_subclass_anywhere_has_a_status() -> None:
    for cls in subclasses(EsdError):
        assert status_of(cls.__new__(cls, "text")).code in CODES.values()  # whatever else it is made of


@pytest.mark.parametrize("error", [Internal("row 7 of /secret"), KeyError("/secret"), EsdError("/secret")])
def test_defects_are_logged_and_hidden(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        status = status_of(error)
    assert (status.code, status.details) == (grpc.StatusCode.INTERNAL, INTERNAL_TEXT)
    assert "/secret" in caplog.text


def test_a_long_message_is_cut_to_what_fits_into_headers() -> None:
    assert len(status_of(InvalidArgument("x" * 100_000)).details) == 2000
    assert status_of(InvalidArgument("行" * 100_000)).details == "行" * 666  # 3 bytes each, which headers triple


def test_a_reason_is_looked_up_and_never_imported() -> None:
    error = error_from(rpc_error(grpc.StatusCode.NOT_FOUND, "gone", reason="os.system"))
    assert type(error) is errors.NotFound


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.FAILED_PRECONDITION, FailedPrecondition),  # not StaleVersion, which shares the code
        (grpc.StatusCode.UNIMPLEMENTED, FailedPrecondition),
        (grpc.StatusCode.INTERNAL, Internal),
        # A peer that hangs, wakes up too late or has too much to do: all of these pass.
        (grpc.StatusCode.CANCELLED, Unavailable),
        (grpc.StatusCode.ABORTED, Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Overloaded),
    ],
)
def test_a_status_without_a_reason_is_classed_by_its_code(code: grpc.StatusCode, cls: type[EsdError]) -> None:
    assert type(error_from(rpc_error(code, "text"))) is cls


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"),
        (grpc.StatusCode.UNKNOWN, "Stream removed"),
    ],
)
def test_a_call_that_its_connection_has_lost_may_be_repeated(code: grpc.StatusCode, details: str) -> None:
    error = error_from(rpc_error(code, details))
    assert type(error) is Unavailable
    assert details in str(error)


def test_only_an_overloaded_peer_is_worth_another_try_of_those_that_refuse_by_a_limit() -> None:
    for error in (ResourceExhausted("the upload has more than 5 bytes"), Overloaded("8 pulls wait")):
        status = status_of(error)
        assert status.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert type(error_from(rpc_error(status.code, status.details, status.reason))) is type(error)
    assert issubclass(Overloaded, AWAY)
    assert not issubclass(ResourceExhausted, AWAY)


@pytest.mark.parametrize(
    ("details", "cls", "knob"),
    [
        ("SERVER: Received message larger than max (70004 vs. 65536)", ResourceExhausted, "MAX_REQUEST_BYTES"),
        ("CLIENT: Received message larger than max (70004 vs. 65536)", ResourceExhausted, "MAX_MESSAGE_BYTES"),
        ("SERVER: Sent message larger than max (70004 vs. 65536)", ResourceExhausted, "MAX_MESSAGE_BYTES"),
    ],
)
def test_limits_that_grpc_enforces_name_their_setting(details: str, cls: type[EsdError], knob: str) -> None:
    error = error_from(rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, details))
    assert type(error) is cls
    assert details in str(error)
    assert knob in str(error)


def test_failed_calls_leave_the_block_as_domain_errors_with_their_cause() -> None:
    original = rpc_error(grpc.StatusCode.UNAVAILABLE, "connection refused")
    with pytest.raises(Unavailable, match="connection refused") as caught, domain_errors():
        raise original
    assert caught.value.__cause__ is original
