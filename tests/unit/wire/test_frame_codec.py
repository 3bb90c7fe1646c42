"""Frames as a client writes them, natively, against protobuf; and answers as it reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esd.native.rows import HeldFrame, initialise
from esd.protos import common_pb2, ps_pb2
from esd.services.domain.errors import Internal
from esd.services.domain.parcels import Parcel, Pulls
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.wire.frames import Answer, FrameMessage, PulledRows, encode_parcel

SPEC = TableSpec("rows", 3, OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD), 7, 0.1)
CACHE = np.random.default_rng(5).normal(size=(50, SPEC.row_width)).astype(np.float32)


def parcel(rows: int, gradients: int, pulls: int, *, cached: bool = True, worker: int = 3) -> Parcel:
    rng = np.random.default_rng(rows + 100 * gradients + 10_000 * pulls)

    def ids(count: int) -> np.ndarray:
        return rng.integers(0, 2**64, count, np.uint64)

    def numbers(count: int) -> np.ndarray:
        return rng.integers(1, 2**40, count)

    def floats(count: int, columns: int) -> tuple[np.ndarray, np.ndarray | None]:
        slots = rng.permutation(len(CACHE))[:count].astype(np.uint32)
        return (CACHE, slots) if cached else (CACHE[slots, :columns].copy(), None)

    row_ids, versions, row_floats = ids(rows), numbers(rows), floats(rows, SPEC.row_width)
    keys = ids(gradients), numbers(gradients), ids(gradients), rng.integers(1, 2**32, gradients, np.uint32)
    rates, (gradient_floats, slots) = rng.random(gradients, np.float32), floats(gradients, SPEC.dimension)
    return Parcel(
        RowBlock(row_ids, versions, *row_floats),
        GradientBlock(*keys, rates, gradient_floats, worker, slots),
        Pulls(ids(pulls), numbers(pulls), np.arange(pulls), pulls // 3),
    )  # fmt: skip


def encoded(what: Parcel, sequence: int = 5, epoch: int = 4, wait: float = 1.5) -> FrameMessage:
    return encode_parcel(what, SPEC, sequence, epoch=epoch, wait_seconds=wait)


def values(block: RowBlock | GradientBlock) -> np.ndarray:
    table, columns = (block.rows, SPEC.row_width) if isinstance(block, RowBlock) else (block.gradients, SPEC.dimension)
    return np.ascontiguousarray((table if block.slots is None else table[block.slots])[:, :columns])


def reference(what: Parcel, sequence: int = 5, epoch: int = 4, wait_ms: int = 1500) -> ps_pb2.ExchangeRequest:
    """The same frame as protobuf writes it."""
    request = ps_pb2.ExchangeRequest(sequence=sequence, table="rows", epoch=epoch)
    rows, gradients, pulls = what.rows, what.gradients, what.pulls
    if len(rows):
        request.rows.ids = rows.ids.tobytes()
        request.rows.versions = rows.versions.tobytes()
        request.rows.rows = values(rows).tobytes()
    if len(gradients):
        block = request.gradients
        block.ids, block.target_versions = gradients.ids.tobytes(), gradients.targets.tobytes()
        block.contributors, block.steps = gradients.contributors.tobytes(), gradients.steps.tobytes()
        block.gradients = values(gradients).tobytes()
        block.worker, block.rates = gradients.worker, gradients.rates.tobytes()
    if len(pulls):
        request.pulls.ids, request.pulls.versions = pulls.ids.tobytes(), pulls.versions.tobytes()
        request.pulls.stateless = pulls.stateless
    if len(gradients) or len(pulls):  # gradients wait for the version before theirs
        request.wait_ms = wait_ms
    return request


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("counts", [(0, 0, 1), (1, 0, 0), (0, 1, 0), (20, 0, 33), (0, 17, 2), (40, 50, 50)])
def test_a_frame_is_the_message_that_protobuf_would_write(counts: tuple[int, int, int], cached: bool) -> None:
    what = parcel(*counts, cached=cached)
    message = encoded(what)
    assert ps_pb2.ExchangeRequest.FromString(message.data) == reference(what)
    assert message.pushes == bool(counts[0] + counts[1])


def test_a_traced_frame_names_the_span_of_its_sender_whatever_part_of_it_is_sent() -> None:
    what, parent = parcel(2, 3, 4), f"00-{7:032x}-{9:016x}-01"
    message = encode_parcel(what, SPEC, 5, epoch=4, wait_seconds=1.5, trace_parent=parent)
    expected = reference(what)
    expected.trace_parent = parent
    assert ps_pb2.ExchangeRequest.FromString(message.data) == expected
    for part in (message, message.numbered(2**40), message.without_pushes(), message.without_pulls()):
        assert HeldFrame(part.data).trace_parent == parent
    assert HeldFrame(encoded(what).data).trace_parent == ""


@given(
    sequence=st.integers(1, 2**64 - 1), other=st.integers(1, 2**64 - 1), epoch=st.integers(0, 2**64 - 1),
    worker=st.integers(0, 63),
)  # fmt: skip
def test_numbers_of_any_length_and_another_number_later(sequence: int, other: int, epoch: int, worker: int) -> None:
    what = parcel(2, 3, 4, worker=worker)
    message = encoded(what, sequence, epoch)
    expected = reference(what, sequence, epoch)
    assert ps_pb2.ExchangeRequest.FromString(message.data) == expected
    again = message.numbered(other)
    expected.sequence = other
    assert ps_pb2.ExchangeRequest.FromString(again.data) == expected
    assert ps_pb2.ExchangeRequest.FromString(again.without_pushes().data) == reference(
        Parcel(what.rows[:0], what.gradients[:0], what.pulls), other, epoch
    )
    assert ps_pb2.ExchangeRequest.FromString(again.without_pulls().data) == reference(
        Parcel(what.rows, what.gradients, what.pulls[:0]), other, epoch
    )


def test_sets_of_more_than_64_workers_have_two_words() -> None:
    what = parcel(2, 4, 3)
    wide = np.stack([what.gradients.contributors, np.arange(4, dtype=np.uint64)], axis=1)
    what = replace(what, gradients=replace(what.gradients, contributors=wide, worker=100))
    assert ps_pb2.ExchangeRequest.FromString(encoded(what).data) == reference(what)
    longer = 4 * SPEC.dimension + 40  # than with one word by 8 bytes
    assert [len(piece) for piece in Parcel(gradients=what.gradients).pieces(SPEC, 3 * longer - 1)] == [2, 2]
    assert [len(piece) for piece in parcel(0, 4, 0).pieces(SPEC, 3 * (longer - 8))] == [3, 1]


@pytest.mark.parametrize("size", [1, 40, 100, 1000, 2**20])
def test_pieces_are_all_of_it_and_none_is_too_long_either_way(size: int) -> None:
    what = parcel(37, 45, 50)
    pieces = list(what.pieces(SPEC, size))
    for name in ("rows", "gradients", "pulls"):
        ids = np.concatenate([getattr(piece, name).ids for piece in pieces])
        np.testing.assert_array_equal(ids, getattr(what, name).ids)
    for piece in pieces:
        payload = sum(
            array.nbytes
            for array in (
                piece.rows.ids, piece.rows.versions, values(piece.rows), piece.pulls.ids,
                piece.gradients.ids, piece.gradients.targets, piece.gradients.contributors, piece.gradients.steps,
                values(piece.gradients), piece.pulls.versions,
            )
        )  # fmt: skip
        assert len(piece) == 1 or (payload <= size and piece.pulls.answer_bytes(SPEC) <= size)
    assert len(pieces) == {1: 132, 2**20: 1}.get(size, len(pieces))


def test_pulls_wait_for_no_long_push() -> None:
    what = parcel(37, 45, 50)  # pushes of 3164 bytes
    together = next(what.pieces(SPEC, 8 * 3164))
    assert together is what
    first, second = what.pieces(SPEC, 8 * 3163)
    assert (len(first), len(first.pulls)) == (50, 50)
    assert (len(second), len(second.pulls)) == (82, 0)


def test_each_shard_gets_what_is_its_own() -> None:
    what = parcel(30, 40, 50)
    shards = dict(what.by_shard(3))
    assert shards.keys() == {0, 1, 2}
    for part in shards.values():
        at = np.searchsorted(np.sort(what.rows.ids), part.rows.ids)
        whole = values(what.rows)[np.argsort(what.rows.ids)]
        np.testing.assert_array_equal(values(part.rows), whole[at])
        np.testing.assert_array_equal(what.pulls.ids[part.pulls.places], part.pulls.ids)
    assert sum(len(part) for part in shards.values()) == len(what)
    assert [shard for shard, _ in parcel(0, 0, 1).by_shard(5)] != []
    assert list(parcel(0, 0, 0).by_shard(1)) == []


def test_columns_that_do_not_fit_are_a_defect() -> None:
    what = parcel(3, 0, 0)
    wrong_slot = RowBlock(what.rows.ids, what.rows.versions, CACHE, np.array([1, 2, 50], np.uint32))
    with pytest.raises(ValueError, match="a slot is not in the table"):
        encoded(Parcel(wrong_slot, what.gradients, what.pulls))
    few_slots = replace(what.rows, slots=np.array([1, 2], np.uint32))
    with pytest.raises(ValueError, match="ids and slots differ in length"):
        encoded(Parcel(few_slots, what.gradients, what.pulls))
    signed = replace(what.rows, ids=what.rows.ids.astype(np.int64))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        encoded(Parcel(signed, what.gradients, what.pulls))


def test_an_answer_is_read_as_protobuf_reads_it() -> None:
    rows = CACHE[:2]
    message = ps_pb2.ExchangeResponse(
        sequence=2**40, stored=True, newly_stored=300, already_known=7, rows=rows.tobytes(),
        positions=np.array([4, 1], np.uint32).tobytes(), done=True,
    )  # fmt: skip
    answer = Answer(message.SerializeToString())
    parts = answer.parts
    assert (parts.sequence, parts.stored, parts.newly_stored, parts.already_known) == (2**40, True, 300, 7)
    assert (parts.done, parts.brings_rows, answer.refusal, answer.credit) == (True, True, None, None)
    into = np.zeros((9, SPEC.row_width), np.float32)
    pulled = PulledRows(pulls_to([8, 7, 6, 5, 4]), into, SPEC)
    pulled.place(answer)
    np.testing.assert_array_equal(into[[4, 7]], rows)
    assert not into[[0, 1, 2, 3, 5, 6, 8]].any()
    assert (pulled.missing, pulled.bytes_missing) == (3, 3 * SPEC.row_bytes)

    refused = Answer(ps_pb2.ExchangeResponse(refusal=common_pb2.Refusal(code=3, message="no")).SerializeToString())
    assert refused.refusal == common_pb2.Refusal(code=3, message="no")
    granted = Answer(ps_pb2.ExchangeResponse(credit=ps_pb2.Credit(frames=8, bytes=2**20)).SerializeToString()).credit
    assert granted is not None
    assert (granted.frames, granted.bytes) == (8, 2**20)


@pytest.mark.parametrize("field", [7, 9], ids=["refusal", "credit"])
def test_an_answer_whose_refusal_or_credit_is_no_message_is_none(field: int) -> None:
    with pytest.raises(Internal, match="sent 4 bytes in an exchange that are no answer"):
        Answer(bytes([field << 3 | 2, 2, 0xFF, 0xFF]))


def pulls_to(places: Iterable[int], stateless: int = 0) -> Pulls:
    where = np.array(list(places))
    ids = np.arange(len(where), dtype=np.uint64)
    return Pulls(ids, np.ones(len(where), np.int64), where, stateless)


def test_values_come_without_the_state_that_is_not_asked_for() -> None:
    into = np.full((5, SPEC.row_width), np.nan, np.float32)
    pulled = PulledRows(pulls_to([4, 3, 2, 1, 0], stateless=3), into, SPEC)
    assert pulled.bytes_missing == 2 * SPEC.row_bytes + 3 * 4 * SPEC.dimension
    for positions in ([1, 3], [0, 2, 4]):
        floats = b"".join(CACHE[at, : None if at < 2 else SPEC.dimension].tobytes() for at in positions)
        listed = np.array(positions, np.uint32).tobytes()
        pulled.place(Answer(ps_pb2.ExchangeResponse(rows=floats, positions=listed).SerializeToString()))
    np.testing.assert_array_equal(into[[4, 3]], CACHE[:2])
    np.testing.assert_array_equal(into[[2, 1, 0], : SPEC.dimension], CACHE[2:5, : SPEC.dimension])
    assert np.isnan(into[[2, 1, 0], SPEC.dimension :]).all()
    assert (pulled.missing, pulled.bytes_missing) == (0, 0)


@pytest.mark.parametrize(
    ("floats", "positions"),
    [(SPEC.dimension, [0]), (SPEC.row_width, [1]), (2 * SPEC.dimension, [1]), (SPEC.dimension, [1, 2])],
    ids=["a row without its state", "values with a state", "a row too many", "a row too few"],
)
def test_parts_that_are_not_what_is_asked_for_are_refused(floats: int, positions: list[int]) -> None:
    pulled = PulledRows(pulls_to(range(3), stateless=2), np.zeros((3, SPEC.row_width), np.float32), SPEC)
    listed = np.array(positions, np.uint32).tobytes()
    message = ps_pb2.ExchangeResponse(rows=bytes(4 * floats), positions=listed).SerializeToString()
    with pytest.raises(Internal, match="does not hold whole rows"):
        pulled.place(Answer(message))


def test_a_row_that_was_never_trained_is_made_where_it_is_pulled() -> None:
    """As the server makes it, bit for bit, with a state of 0 where that is asked for; the others are in the message."""
    made = np.zeros((5, SPEC.row_width), np.float32)
    initialise(np.arange(5, dtype=np.uint64), np.zeros(5, np.int64), made, SPEC.dimension, SPEC.seed, SPEC.init_scale)
    rows = np.full((5, SPEC.row_width), 7, np.float32)
    pulled = PulledRows(pulls_to([2, 0, 1, 4, 3], stateless=2), rows, SPEC)
    pulled.place(Answer(ps_pb2.ExchangeResponse(rows=CACHE[0].tobytes(), initial=b"\1\0").SerializeToString()))
    assert (pulled.missing, pulled.initial) == (3, 1)
    assert pulled.bytes_missing == SPEC.row_bytes + 2 * 4 * SPEC.dimension
    answer = Answer(
        ps_pb2.ExchangeResponse(
            initial=b"\1\1", positions=np.array([2, 4], np.uint32).tobytes(), done=True
        ).SerializeToString()
    )
    assert answer.parts.brings_rows
    pulled.place(answer)
    assert (pulled.missing, pulled.initial, pulled.bytes_missing) == (1, 3, 4 * SPEC.dimension)
    np.testing.assert_array_equal(rows[[2, 1]], made[[0, 2]])
    np.testing.assert_array_equal(rows[3], [*made[4, : SPEC.dimension], *[7] * (SPEC.row_width - SPEC.dimension)])
    np.testing.assert_array_equal(rows[0], CACHE[0])
    assert (rows[4] == 7).all()


@pytest.mark.parametrize(
    ("rows", "initial", "positions"),
    [(1, b"\1\1", []), (1, b"\0\0", []), (2, b"\0", []), (0, b"\1\1", [0]), (0, b"\1", [0, 1])],
    ids=["a row more than marked", "a row less", "a row without a mark", "a mark without a place", "a place too many"],
)
def test_marks_of_initial_rows_that_do_not_fit_are_refused(rows: int, initial: bytes, positions: list[int]) -> None:
    pulled = PulledRows(pulls_to(range(4)), np.zeros((4, SPEC.row_width), np.float32), SPEC)
    listed = np.array(positions, np.uint32).tobytes()
    message = ps_pb2.ExchangeResponse(rows=bytes(rows * SPEC.row_bytes), initial=initial, positions=listed)
    with pytest.raises(Internal, match="does not hold whole rows"):
        pulled.place(Answer(message.SerializeToString()))


def test_an_initial_row_that_was_not_asked_for_is_refused() -> None:
    pulled = PulledRows(pulls_to(range(2)), np.zeros((2, SPEC.row_width), np.float32), SPEC)
    with pytest.raises(Internal, match="rows that are not asked for"):
        pulled.place(Answer(ps_pb2.ExchangeResponse(initial=b"\1\1\1").SerializeToString()))


@given(st.integers(0, 9), st.integers(0, 9), st.lists(st.booleans(), max_size=9))
def test_rows_without_state_are_the_last_ones_of_every_part(start: int, stop: int, chosen: list[bool]) -> None:
    rows = len(chosen)
    for stateless in range(rows + 1):
        pulls = pulls_to(range(rows), stateless)
        for part in (slice(start, stop), np.flatnonzero(chosen)):
            assert pulls[part].stateless == np.count_nonzero(pulls.ids[part] >= rows - stateless)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_refused(data: bytes) -> None:
    pulled = PulledRows(pulls_to(range(4), stateless=2), np.zeros((4, SPEC.row_width), np.float32), SPEC)
    try:
        answer = Answer(data)
        pulled.place(answer)
    except Internal:
        return
    assert ps_pb2.ExchangeResponse.FromString(data).sequence == answer.parts.sequence
