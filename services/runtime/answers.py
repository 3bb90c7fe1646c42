"""Answers that cannot be decoded: without this module gRPC logs a traceback and returns None to the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from esd.services.domain.errors import Internal

_Read = Callable[[bytes], Any]


class ReadableAnswers:
    """A channel for a generated stub. An answer that cannot be decoded raises Internal when it is used.

    Args:
        channel: the channel that carries the calls.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        """Returns the stub factory of a kind of calls, such as `unary_stream`."""
        callable_of = getattr(self._channel, kind)

        def of_method(path: str, *, response_deserializer: _Read, **others: Any) -> Any:
            return callable_of(path, response_deserializer=_careful(path, response_deserializer), **others)

        return of_method


def _careful(path: str, read: _Read) -> _Read:
    def read_if_possible(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError:
            return _Unreadable(f"the {len(data)} bytes that answer {path} are not a message of its type")

    return read_if_possible


class _Unreadable:
    """Takes the place of an answer that cannot be decoded, and raises on every access."""

    __slots__ = ("_cause",)

    def __init__(self, cause: str) -> None:
        self._cause = cause

    def __getattr__(self, field: str) -> Any:
        raise Internal(self._cause)
