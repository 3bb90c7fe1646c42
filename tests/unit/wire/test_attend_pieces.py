"""Messages to a worker that are longer than a message may be arrive whole."""

from __future__ import annotations

import pytest

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.plans import EndOfStream
from esd.services.wire.attend import Joined, decode_response, encode_answer, in_pieces
from esd.services.wire.plans import encode_plan_message

SHORT = encode_answer(7, []) + encode_plan_message(EndOfStream(3))
LONG = pb.AttendResponse(received=9, refusals=[{"message": "x" * 1000}]).SerializeToString()


def test_a_long_message_comes_in_pieces_and_others_as_they_are() -> None:
    joined = Joined()
    for message in (SHORT, LONG, SHORT, LONG + LONG):
        sent = list(in_pieces(message, longest=200))
        assert all(len(each) <= 200 for each in sent)
        assert (len(sent) == 1) == (message == SHORT)
        whole = [joined.add(each) for each in sent]
        assert whole == [None] * (len(sent) - 1) + [message]
    assert decode_response(SHORT).messages == [EndOfStream(3)]


def test_a_message_among_the_pieces_of_another_is_refused() -> None:
    joined = Joined()
    first, *_ = in_pieces(LONG, longest=200)
    assert joined.add(first) is None
    with pytest.raises(InvalidArgument, match="a message follows 1 pieces of one that is not complete"):
        joined.add(SHORT)
