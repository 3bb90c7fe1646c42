"""Parsing of messages that arrive as bytes."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from esd.services.domain.errors import InvalidArgument

M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """Parses a message of a type. Raises InvalidArgument with the type's name if the bytes are no such message."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise InvalidArgument(f"these {len(data)} bytes are no {kind.DESCRIPTOR.name}") from None
