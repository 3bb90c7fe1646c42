"""Changes that a broken or hostile peer makes to a good message, as hypothesis strategies.

A twist is drawn independently of its message, so that messages of a running job, which are not known in advance, can be
twisted, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

Pools = Mapping[str, Sequence[str]]
Twist = Callable[[bytes], bytes]  # changes a good message

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (0, 2**31 - 1),
}

# Values of arrays: the edges of every dtype of the contract, and the numbers that are none.
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


def drawn(strategy: st.SearchStrategy[Any], count: int, number: int) -> list[Any]:
    """Draws `count` values by a seed."""
    values: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    return values


def twists(descriptor: Descriptor, pools: Pools) -> st.SearchStrategy[Twist]:
    """Makes twists of messages of a kind: one to three fields changed, at any depth; or cut off, or damaged."""
    if not descriptor.fields:
        return damages()
    return st.one_of(changes(descriptor, pools), changes(descriptor, pools), damages())


def changes(descriptor: Descriptor, pools: Pools) -> st.SearchStrategy[Twist]:
    """Makes twists that leave a message of the kind."""
    steps = st.lists(_change(descriptor, pools), min_size=1, max_size=3)
    return steps.map(lambda chosen: _Changes(GetMessageClass(descriptor), chosen))


def damages() -> st.SearchStrategy[Twist]:
    """Makes twists that cut a message off, or change one byte."""
    return st.builds(_Damage, st.integers(0, 2**16), st.integers(0, 255))


def anything(descriptor: Descriptor, pools: Pools) -> st.SearchStrategy[Message]:
    """Makes a message whose fields hold anything, or nothing."""

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if draw(st.booleans()):
                _set(message, field, draw(_value(field, pools)))
        return message

    return build()


@dataclass(frozen=True, slots=True)
class _Damage:
    """Cuts bytes off, or changes a single byte."""

    place: int
    value: int

    def __call__(self, good: bytes) -> bytes:
        if not good:
            return bytes([self.value])
        at = self.place % len(good)
        return good[:at] if self.value % 2 else good[:at] + bytes([self.value]) + good[at + 1 :]


@dataclass(frozen=True, slots=True)
class _Nudge:
    """Changes an integer by a little, within the range of its field."""

    by: int
    low: int
    high: int

    def __call__(self, good: int) -> int:
        return min(max(good + self.by, self.low), self.high)


@dataclass(frozen=True, slots=True)
class _Change:
    """Gives a field another value.

    Attributes:
        path: the messages around the field: their names, and the position in a repeated field, else -1.
        name: the name of the field.
        value: the new value, or a function of the good value.
    """

    path: tuple[tuple[str, int], ...]
    name: str
    value: Any

    def apply(self, message: Message) -> None:
        place: Any = message
        for name, index in self.path:
            place = getattr(place, name)
            if index >= 0:
                if not len(place):
                    return
                place = place[index % len(place)]
        value = self.value
        if isinstance(value, (_Damage, _Nudge)):
            value = value(getattr(place, self.name))
        _set(place, place.DESCRIPTOR.fields_by_name[self.name], value)


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes fields of messages of a kind; other bytes stay as they are."""

    kind: type[Message]
    changes: Sequence[_Change]

    def __call__(self, good: bytes) -> bytes:
        try:
            message = self.kind.FromString(good)
        except DecodeError:
            return good
        for change in self.changes:
            change.apply(message)
        return message.SerializeToString()


def _change(descriptor: Descriptor, pools: Pools) -> st.SearchStrategy[_Change]:
    @st.composite
    def build(draw: st.DrawFn) -> _Change:
        path: list[tuple[str, int]] = []
        place = descriptor
        while True:
            field: FieldDescriptor = draw(st.sampled_from(list(place.fields)))
            within = field.message_type
            if within is None or not within.fields or draw(st.integers(0, 9)) == 0:
                return _Change(tuple(path), field.name, draw(_other(field, pools)))
            path.append((field.name, draw(st.integers(0, 3)) if field.is_repeated else -1))
            place = within

    return build()


def _other(field: FieldDescriptor, pools: Pools) -> st.SearchStrategy[object]:
    """Draws new values, and functions that make a new value from a good one."""
    value = _value(field, pools)
    if field.is_repeated:
        return value
    if field.cpp_type in _INTEGERS:
        low, high = _INTEGERS[field.cpp_type]
        return st.one_of(value, st.sampled_from([_Nudge(by, low, high) for by in (-2, -1, 1, 2)]))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.one_of(value, damages())
    return value


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
        return anything(field.message_type, pools)
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
