"""Requests that a broken or hostile peer might send, as hypothesis strategies.

A request is a list of serialised messages: a single one, or several for a streaming call. There are three kinds, from
the outside in: bytes that are no message; messages with arbitrary fields; good messages with a few fields changed,
which pass most checks and so reach the deepest.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from hardening.fuzz.twists import Pools, Twist, anything, changes, damages

Request = list[bytes]

_LONGEST_STREAM = 4


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
    changed = st.builds(_twisted, changes(method, pools), good) if method.fields else good
    one = st.one_of(
        changed,
        changed,
        anything(method, pools).map(lambda message: message.SerializeToString()),
        st.binary(max_size=64),
        st.builds(_twisted, damages(), good),
        st.just(huge).map(bytes),
    )
    if not streaming:
        return one.map(lambda message: [message])
    return st.lists(st.one_of(one, good), max_size=_LONGEST_STREAM)


def _twisted(twist: Twist, good: bytes) -> bytes:
    return twist(good)
