"""Requests that a broken or hostile peer might send, as hypothesis strategies.

A request is a list of serialised messages: one of them, or several for a streaming call. Three kinds, from the
outside in: bytes that are no message; messages whose fields hold anything; good messages in which a few fields were
changed, which pass most checks and so reach the deepest.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

Pools = Mapping[str, Sequence[str]]
Request = list[bytes]

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (0, 2**31 - 1),
}
_LONGEST_STREAM = 4

# What arrays are made of: the edges of every dtype of the contract, and the numbers that are none.
_WORDS = [
    *(struct.pack("<Q", value) for value in (0, 1, 2, 3, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1)),
    *(struct.pack("<2f", *pair) for pair in ((0.0, 1.0), (0.5, -0.5), (float("nan"), 1.0), (float("inf"), 1e38))),
]
_ARRAYS = st.lists(st.sampled_from(_WORDS), max_size=12).map(b"".join)
_BYTES = st.one_of(_ARRAYS, _ARRAYS.map(lambda array: array[:-3]), st.binary(max_size=40))
_TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "..", "/etc/passwd", "%s%n", "\0", "\u202e", "a" * 300, "'; drop", "127.0.0.1:1", "esd"]),
)


def requests(
    method: Descriptor, examples: Sequence[Message], pools: Pools, *, streaming: bool, huge: int
) -> st.SearchStrategy[Request]:
    """Makes requests of one method.

    Args:
        method: descriptor of its input.
        examples: good messages of it.
        pools: by name of a string field, values that mean something to the service, such as its tables.
        streaming: whether the caller sends a stream.
        huge: bytes of a message that is over the service's limit.
    """
    good = st.sampled_from([example.SerializeToString() for example in examples])
    one = st.one_of(
        _changed(method, examples, pools),
        _changed(method, examples, pools),
        _anything(method, pools).map(lambda message: message.SerializeToString()),
        st.binary(max_size=64),
        st.builds(_damaged, good, st.integers(0, 2**16), st.integers(0, 255)),
        st.just(huge).map(bytes),
    )
    if not streaming:
        return one.map(lambda message: [message])
    return st.lists(st.one_of(one, good), max_size=_LONGEST_STREAM)


def _anything(descriptor: Descriptor, pools: Pools) -> st.SearchStrategy[Message]:
    """Makes a message whose fields hold anything, or nothing."""

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if draw(st.booleans()):
                _set(message, field, draw(_value(field, pools)))
        return message

    return build()


def _changed(descriptor: Descriptor, examples: Sequence[Message], pools: Pools) -> st.SearchStrategy[bytes]:
    """Makes a good message with one to three fields changed, at any depth."""

    @st.composite
    def build(draw: st.DrawFn) -> bytes:
        message = GetMessageClass(descriptor)()
        message.CopyFrom(draw(st.sampled_from(list(examples))))
        for _ in range(draw(st.integers(1, 3))):
            place: Message = message
            while place.DESCRIPTOR.fields:
                field: FieldDescriptor = draw(st.sampled_from(_fields(place)))
                if field.message_type is None or field.is_repeated or draw(st.integers(0, 9)) == 0:
                    _set(place, field, draw(_value(field, pools)))
                    break
                place = getattr(place, field.name)
        return message.SerializeToString()

    return build()


def _fields(message: Message) -> list[FieldDescriptor]:
    descriptor: Any = message.DESCRIPTOR  # the two implementations of protobuf have a type each
    return list(descriptor.fields)


def _value(field: FieldDescriptor, pools: Pools) -> st.SearchStrategy[object]:
    if field.is_repeated:
        return st.lists(_single(field, pools), max_size=4)
    return _single(field, pools)


def _single(field: FieldDescriptor, pools: Pools) -> st.SearchStrategy[object]:
    kind = field.cpp_type
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        return st.one_of(st.integers(0, 5), st.sampled_from([low, high, high // 2]), st.integers(low, high))
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        assert field.message_type is not None  # noqa: S101 - the type says so
        return _anything(field.message_type, pools)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return st.floats()
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _BYTES
    known = pools.get(field.name)
    return st.one_of(st.sampled_from(known), _TEXTS) if known else _TEXTS


def _set(message: Message, field: FieldDescriptor, value: object) -> None:
    if field.is_repeated:
        message.ClearField(field.name)
        getattr(message, field.name).extend(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def _damaged(message: bytes, place: int, value: int) -> bytes:
    """Returns a good message, cut off or with one byte changed."""
    if not message:
        return bytes([value])
    at = place % len(message)
    return message[:at] if value % 2 else message[:at] + bytes([value]) + message[at + 1 :]
