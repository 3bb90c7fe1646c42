"""Requests that cannot be decoded: gRPC would answer with an internal error, although the caller is at fault."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from esd.services.domain.errors import InvalidArgument

_UNDECODABLE: Final = object()


def tolerant(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """Returns a deserializer that does not raise, so that the handler can refuse the request (see `checked`).

    None, which stands for a handler that receives bytes, stays None.
    """
    if deserialize is None:
        return None

    def decode(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _UNDECODABLE

    return decode


def checked(request: Any, method: str) -> Any:
    """Returns the request. Raises InvalidArgument if its bytes could not be decoded."""
    if request is _UNDECODABLE:
        raise InvalidArgument(f"the request of {method} is not a message of the type that it expects")
    return request


async def all_checked(requests: AsyncIterator[Any], method: str) -> AsyncIterator[Any]:
    """Yields the requests of a stream, each checked."""
    async for request in requests:
        yield checked(request, method)
