"""However the stream is cut into batches, the same global batches come out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.service.state.samples import Intake
from services.domain.batches import SampleBatch


def numbered(start: int, count: int) -> SampleBatch:
    numbers = np.arange(start, start + count)
    return SampleBatch(
        numbers.astype(np.uint64)[:, None], np.zeros((count, 0), np.float32), np.zeros(count, np.float32)
    )


def drain(intake: Intake) -> list[list[int]]:
    batches = []
    while intake.ready:
        batches.append(intake.take().ids[:, 0].tolist())
    return batches


@given(st.lists(st.integers(0, 20), max_size=12), st.integers(1, 9))
def test_global_batches_do_not_depend_on_the_cut(sizes: list[int], k: int) -> None:
    intake = Intake(k, limit=1000)
    out: list[list[int]] = []
    for size in sizes:
        intake.put(numbered(intake.taken, size))
        out += drain(intake)
    assert all(len(batch) == k for batch in out)
    intake.close()
    out += drain(intake)
    total = sum(sizes)
    assert out == [list(range(start, min(start + k, total))) for start in range(0, total, k)]
    assert intake.exhausted
    assert intake.taken == total


def test_room() -> None:
    intake = Intake(batch_size=4, limit=8)
    assert intake.has_room(100)  # larger than the limit, but nothing else is there to plan
    intake.put(numbered(0, 5))
    assert intake.has_room(3)
    assert not intake.has_room(4)
    intake.take()
    assert intake.pending == 1
    assert intake.has_room(100)  # no whole global batch is left to plan, so the stream must go on
    intake.put(numbered(5, 4))
    assert intake.has_room(3)
    assert not intake.has_room(4)


@given(st.lists(st.integers(1, 9), min_size=3, max_size=30), st.data())
def test_a_stream_that_goes_back_gives_the_same_batches_again(sizes, data):
    intake = Intake(4, 1000, keep=True)
    start = 0
    for size in sizes:
        intake.put(numbered(start, size))
        start += size
    given_out = []
    while intake.ready:
        given_out.append(intake.take())
    if not given_out:
        return
    released = data.draw(st.integers(0, len(given_out)))
    intake.release(4 * released)
    back = data.draw(st.integers(released, len(given_out)))
    intake.rewind(4 * back)
    assert intake.position == 4 * back
    again = []
    while intake.ready:
        again.append(intake.take())
    assert [batch.ids.tolist() for batch in again] == [batch.ids.tolist() for batch in given_out[back:]]
    assert intake.taken == start
