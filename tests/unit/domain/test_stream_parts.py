"""The turns of a stream's parts: their order follows the rule, and a dispatcher knows it from the log alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.sources import SourcePosition
from esd.services.domain.stream_parts import StreamPart, StreamPlace
from tests.support.stream_parts import merged

Sample = tuple[int, int]  # part, and number within it


def numbered(lengths: list[int]) -> list[list[Sample]]:
    return [[(part, number) for number in range(length)] for part, length in enumerate(lengths)]


def given_in_turns(lengths: list[int], shares: list[int]) -> list[tuple[StreamPlace, int]]:
    """Lets parts of these lengths give all that they may: the place before each entry, and its number of samples."""
    place, entries = StreamPlace.beginning(shares), []
    while place.samples < sum(lengths):
        ended = [part for part, length in enumerate(lengths) if place.parts[part].samples == length]
        place = place.past(ended)
        count = min(place.left, lengths[place.turn] - place.parts[place.turn].samples)
        entries.append((place, count))
        place = place.after(count)
    return entries


PARTS = st.integers(1, 4).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(0, 12), min_size=count, max_size=count),
        st.lists(st.integers(1, 5), min_size=count, max_size=count),
    )
)


@given(PARTS)
def test_parts_give_their_shares_in_turn(parts: tuple[list[int], list[int]]) -> None:
    lengths, shares = parts
    order = [
        (place.turn, place.parts[place.turn].samples + number)
        for place, count in given_in_turns(lengths, shares)
        for number in range(count)
    ]
    assert order == merged(numbered(lengths), shares)


@given(PARTS)
def test_the_parts_of_the_entries_say_which_parts_have_ended(parts: tuple[list[int], list[int]]) -> None:
    """So a dispatcher that reads the log goes on in the same turn."""
    place = StreamPlace.beginning(parts[1])
    for expected, count in given_in_turns(*parts):
        place = place.at(expected.turn)
        assert place == expected
        place = place.after(count)


def test_each_part_goes_on_at_its_own_place() -> None:
    place = StreamPlace.beginning([2, 2]).at(0, SourcePosition("north:7")).after(1).after(1)
    place = place.at(1, SourcePosition("south:3", behind=5)).after(1)
    north, south = (part.taken for part in place.parts)
    assert (north, north.source) == (2, SourcePosition("north:7", behind=2))
    assert (south, south.source) == (1, SourcePosition("south:3", behind=6))
    assert (place.samples, place.turn, place.left) == (3, 1, 1)


def test_a_part_that_has_ended_does_not_go_on() -> None:
    place = StreamPlace.beginning([2, 2]).after(1).at(1).after(2)
    assert place.parts == (StreamPart(2, 1, ended=True), StreamPart(2, 2))
    for part in (0, 2):
        with pytest.raises(FailedPrecondition, match=f"goes on with part {part}, which it has not, or which has ended"):
            place.at(part)
    with pytest.raises(FailedPrecondition, match="all parts of the stream have ended"):
        place.past([0, 1])


def test_the_only_part_has_no_turns() -> None:
    place = StreamPlace.beginning([4]).after(9)
    assert (place.samples, place.given, place.turn) == (9, 0, 0)
