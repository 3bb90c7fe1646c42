"""Messages that come as bytes: those that are none are refused by name."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from esd.services.domain.errors import InvalidArgument

M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """Parses a message. Raises InvalidArgument if these bytes are none of this kind."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise InvalidArgument(f"these {len(data)} bytes are no {kind.DESCRIPTOR.name}") from None
