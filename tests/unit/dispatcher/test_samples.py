"""However the stream is cut into batches, the same global batches come out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esd.dispatcher.service.state.samples import SampleQueue
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.sources import SourcePosition
from esd.services.domain.stream_parts import StreamPlace

BEGINNING = StreamPlace.beginning([4])


def numbered(start: int, count: int) -> SampleBatch:
    numbers = np.arange(start, start + count)
    return SampleBatch.of_fields(
        numbers.astype(np.uint64)[:, None], np.zeros((count, 0), np.float32), np.zeros(count, np.float32)
    )


def drain(samples: SampleQueue) -> list[list[int]]:
    batches = []
    while samples.ready:
        batches.append(samples.take().ids.tolist())
    return batches


@given(st.lists(st.integers(0, 20), max_size=12), st.integers(1, 9))
def test_global_batches_do_not_depend_on_the_cut(sizes: list[int], k: int) -> None:
    samples = SampleQueue(k, 1000, 2**30, StreamPlace.beginning([k]))
    out: list[list[int]] = []
    for size in sizes:
        samples.put(numbered(samples.taken, size))
        out += drain(samples)
    assert all(len(batch) == k for batch in out)
    samples.close()
    out += drain(samples)
    total = sum(sizes)
    assert out == [list(range(start, min(start + k, total))) for start in range(0, total, k)]
    assert samples.exhausted
    assert samples.taken == total


def test_room() -> None:
    samples = SampleQueue(batch_size=4, limit=8, limit_bytes=2**30, start=BEGINNING)
    assert samples.has_room(numbered(0, 100))  # larger than the limit, but nothing else is there to plan
    samples.put(numbered(0, 5))
    assert samples.has_room(numbered(0, 3))
    assert not samples.has_room(numbered(0, 4))
    samples.take()
    assert samples.pending == 1
    assert samples.has_room(numbered(0, 100))  # no whole global batch is left to plan, so the stream must go on
    samples.put(numbered(5, 4))
    assert samples.has_room(numbered(0, 3))
    assert not samples.has_room(numbered(0, 4))


def test_room_in_bytes() -> None:
    samples = SampleQueue(4, 1000, limit_bytes=12 * 6, start=BEGINNING, keep=True)  # six samples of an id and a label
    assert samples.has_room(numbered(0, 100))
    for start in (0, 5):
        samples.put(numbered(start, 5))
        assert samples.has_room(numbered(0, 1)) == (start == 0)
        assert not samples.has_room(numbered(0, 2))
        samples.take()
    assert samples.pending_bytes == 12 * 2
    samples.rewind_to(0)
    assert samples.pending_bytes == 12 * 10


@given(st.lists(st.integers(1, 9), min_size=3, max_size=30), st.data())
def test_a_stream_that_goes_back_gives_the_same_batches_again(sizes, data):
    samples = SampleQueue(4, 1000, 2**30, BEGINNING, keep=True)
    start = 0
    for size in sizes:
        samples.put(numbered(start, size))
        start += size
    given_out = []
    while samples.ready:
        given_out.append(samples.take())
    if not given_out:
        return
    released = data.draw(st.integers(0, len(given_out)))
    samples.release(4 * released)
    back = data.draw(st.integers(released, len(given_out)))
    samples.rewind_to(4 * back)
    assert samples.position == 4 * back
    again = []
    while samples.ready:
        again.append(samples.take())
    assert [batch.ids.tolist() for batch in again] == [batch.ids.tolist() for batch in given_out[back:]]
    assert samples.taken == start


@pytest.mark.parametrize("position", [4, 10, 16, 20])
def test_it_goes_back_to_what_it_has_given_out_only(position):
    """Samples that stood at another place of the stream would be trained in the place of others, unseen."""
    samples = SampleQueue(4, 1000, 2**30, BEGINNING, keep=True)
    samples.put(numbered(0, 20))
    for _ in range(3):
        samples.take()
    samples.release(8)
    with pytest.raises(
        FailedPrecondition, match=f"cannot continue at sample {position}: this dispatcher holds samples"
    ):
        samples.rewind_to(position)


@given(st.data())
def test_a_cut_within_any_batch_knows_the_place_of_every_part(data):
    """As if the samples before the cut were all that had come."""
    shares, places = [2, 3], [StreamPlace.beginning([2, 3])]
    samples = SampleQueue(5, 1000, 2**30, places[0], keep=True)
    while samples.taken < 30:
        turn = samples.place
        count = data.draw(st.integers(1, turn.left))
        source = SourcePosition(f"{turn.turn}", behind=turn.parts[turn.turn].samples)
        samples.put(replace(numbered(samples.taken, count), source=source), turn.turn)
        begin = turn.at(turn.turn, source)
        places[-1] = begin
        places += [begin.after(number) for number in range(1, count + 1)]
    while samples.ready:
        samples.take()
    for position, place in enumerate(places[:-1]):
        assert samples.place_at(position) == place
    samples.release(10)
    assert samples.place_at(10) == places[10]
    assert [part.samples for part in samples.place_at(25).parts] == [5 * share for share in shares]


def test_lags_of_parts_are_summed_as_soon_as_all_are_known():
    samples = SampleQueue(4, 1000, 2**30, StreamPlace.beginning([2, 2]))
    for part, (lag, expected) in enumerate([(5, None), (2, 7)]):
        samples.put(replace(numbered(2 * part, 2), source=SourcePosition("place", lag=lag)), part)
        assert samples.lag == expected
