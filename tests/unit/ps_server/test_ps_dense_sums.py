"""Pieces of vectors are added in the order of the workers, whenever they arrive; a wrong one is refused."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from esd.ps_server.core.dense_sums import DenseSums
from esd.ps_server.core.sum_log import LoggedSum, SumLog
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sum_pieces import PIECE_BYTES, PieceName, SumPiece, pieces_of_shard
from esd.services.domain.worker_set import WorkerSet

MEMBERS = WorkerSet.of([1, 2, 5])
FLOAT = np.dtype(np.float32)
WHOLE = PIECE_BYTES // FLOAT.itemsize


def pieces(
    vector: NDArray[Any], iteration: int = 0, number: int = 0, shard: int = 0, shards: int = 1
) -> list[SumPiece]:
    return [
        SumPiece(name, vector[name.start : name.start + name.values])
        for name in pieces_of_shard(iteration, number, vector, shard, shards)
    ]


def vectors_of(rng: np.random.Generator) -> dict[int, list[SumPiece]]:
    """Two iterations of three vectors for each member, the last of integers."""
    found = {}
    for slot in MEMBERS:
        found[slot] = [
            piece
            for iteration in range(2)
            for number, length in enumerate((2 * WHOLE + 7, 3, 1))
            for piece in pieces(
                rng.normal(size=length).astype(np.float32) if number < 2 else rng.integers(0, 9, length),
                iteration,
                number,
            )
        ]
    return found


def summed(sums: DenseSums, sent: dict[int, list[SumPiece]], order: list[int]) -> list[SumPiece]:
    left = {slot: iter(each) for slot, each in sent.items()}
    return [total.piece for slot in order if (total := sums.add(slot, next(left[slot]))) is not None]


def test_the_sum_has_the_same_bits_for_any_order_of_arrival() -> None:
    sent = vectors_of(np.random.default_rng(5))
    expected = [
        (each.name, each.values + second.values + third.values)
        for each, second, third in zip(*sent.values(), strict=True)
    ]
    order = [slot for slot in MEMBERS for _ in sent[slot]]
    for seed in range(20):
        random.Random(seed).shuffle(order)
        sums = DenseSums(MEMBERS, 0, 1)
        found = summed(sums, sent, order)
        assert [each.name for each in found] == [name for name, _ in expected]
        for total, (_, values) in zip(found, expected, strict=True):
            assert total.values is not None
            assert total.values.dtype == values.dtype
            assert total.values.tobytes() == values.tobytes()
        assert (sums.held, sums.missing()) == (0, None)


def test_zeros_are_not_sent_and_count() -> None:
    (name,) = pieces_of_shard(0, 0, np.empty(3, np.float32), 0, 1)
    ones = np.ones(3, np.float32)
    for given in itertools.product((None, ones), repeat=3):
        sums = DenseSums(MEMBERS, 0, 1)
        *none, total = [sums.add(slot, SumPiece(name, values)) for slot, values in zip(MEMBERS, given, strict=True)]
        assert none == [None, None]
        assert total is not None
        count = sum(each is not None for each in given)
        values = total.piece.values
        assert (values is None) if not count else (values == count).all()
        assert (ones == 1).all()


def test_a_sum_names_the_members_that_do_not_want_it_and_has_their_values() -> None:
    (name,) = pieces_of_shard(0, 0, np.empty(3, np.float32), 0, 1)
    for unwanted in ({1}, {2, 5}, set(MEMBERS), set()):
        sums = DenseSums(MEMBERS, 0, 1)
        given = [SumPiece(name, np.ones(3, np.float32), slot not in unwanted) for slot in MEMBERS]
        *_, total = [sums.add(slot, piece) for slot, piece in zip(MEMBERS, given, strict=True)]
        assert total is not None
        assert total.unwanted == unwanted
        assert total.piece.values is not None
        assert (total.piece.values == 3).all()


def test_a_log_counts_what_it_keeps_and_what_each_member_is_sent() -> None:
    log = SumLog([0, 1])
    log.append(LoggedSum(b"a sum", b"name", frozenset([1])))
    log.append(LoggedSum(b"another"))
    assert log.bytes == 5 + 4 + 7
    assert (log.bytes_from(0, 0), log.bytes_from(1, 0), log.bytes_from(1, 1)) == (12, 11, 7)
    assert log.fitting(0, 0, 100) == [b"a sum", b"another"]
    assert log.fitting(1, 0, 11) == [b"name", b"another"]
    assert log.fitting(1, 0, 10) == [b"name"]
    assert log.drop_first() == 9
    assert log.bytes == 7


def test_some_member_is_always_due_and_what_waits_is_counted() -> None:
    sent = vectors_of(np.random.default_rng(6))
    left = {slot: iter(each) for slot, each in sent.items()}
    sums = DenseSums(MEMBERS, 0, 1)
    sums.add(5, next(left[5]))
    assert sums.held == PIECE_BYTES
    assert [slot for slot in MEMBERS if sums.due(slot)] == [1]
    sums.add(1, next(left[1]))
    assert sums.held == 2 * PIECE_BYTES
    assert [slot for slot in MEMBERS if sums.due(slot)] == [1, 2]
    assert sums.missing() == (str(sent[1][0].name), [2])
    assert sums.add(2, next(left[2])) is not None
    assert sums.held == 0


def test_each_shard_gets_every_other_piece() -> None:
    vector = np.arange(5 * WHOLE - 1, dtype=np.float32)
    parts = [pieces(vector, shard=shard, shards=2) for shard in range(2)]
    assert [[piece.name.start // WHOLE for piece in part] for part in parts] == [[0, 2, 4], [1, 3]]
    for shard, part in enumerate(parts):
        sums = DenseSums(WorkerSet.of([0]), shard, 2)
        for piece in part:
            assert sums.add(0, piece) is not None


@pytest.mark.parametrize(
    ("length", "whole", "count"),
    [
        (0, WHOLE, 0),
        (1, WHOLE, 1),
        (16 * WHOLE, WHOLE, 16),
        (16 * WHOLE + 1, 2 * WHOLE, 9),
        (495_888, 2 * WHOLE, 16),
        (128 * WHOLE, 8 * WHOLE, 16),
        (200 * WHOLE, 8 * WHOLE, 25),
    ],
)
def test_a_longer_vector_has_longer_pieces_which_the_sums_accept(length: int, whole: int, count: int) -> None:
    vector = np.zeros(length, np.float32)
    found = pieces(vector)
    assert [piece.name.start for piece in found] == [whole * at for at in range(count)]
    assert sum(piece.name.values for piece in found) == length
    for shards in (1, 2, 3):
        for shard in range(shards):
            sums = DenseSums(WorkerSet.of([0]), shard, shards)
            for iteration in range(2):
                for piece in pieces(vector, iteration, shard=shard, shards=shards):
                    assert sums.add(0, piece) is not None


LONG = np.zeros(3 * WHOLE, np.float32)
FIRST, SECOND, _ = pieces(LONG)


def named(**changes: Any) -> SumPiece:
    given = {"iteration": 0, "number": 0, "start": 0, "length": 4, "dtype": FLOAT} | changes
    return SumPiece(PieceName(**given), None)


@pytest.mark.parametrize(
    ("good", "bad", "text"),
    [
        ([], SECOND, "which does not follow nothing"),
        ([FIRST], FIRST, "which does not follow values 0 to 16383 of 49152"),  # twice
        ([FIRST], named(iteration=1), "which does not follow values 0"),  # half a gradient
        ([FIRST], pieces(LONG)[2], "which does not follow"),
        ([named(iteration=3)], named(iteration=2), "in iteration 2, which does not follow .* in iteration 3"),
        ([named(number=1)], named(number=1), "which does not follow"),
        ([], SumPiece(named().name, np.array([1, np.nan, 1, 1], np.float32)), "slot 1 has sent .* NaN or infinite"),
        ([], SumPiece(named().name, np.array([1, 1, np.inf, 1], np.float32)), "slot 1 has sent .* NaN or infinite"),
    ],
)
def test_what_does_not_come_next_is_refused(good: list[SumPiece], bad: SumPiece, text: str) -> None:
    sums = DenseSums(MEMBERS, 0, 1)
    for piece in good:
        sums.add(1, piece)
    with pytest.raises(InvalidArgument, match=text):
        sums.add(1, bad)


@pytest.mark.parametrize(
    "other", [named(length=5), named(iteration=1), named(number=1), named(dtype=np.dtype(np.int64))]
)
def test_members_that_sum_other_vectors_are_refused(other: SumPiece) -> None:
    sums = DenseSums(MEMBERS, 0, 1)
    sums.add(5, named())
    with pytest.raises(InvalidArgument, match=r"slot 2 has sent .*, where another worker has sent values 0 to 3 of 4"):
        sums.add(2, other)


def test_a_sum_that_overflows_is_infinite_and_no_error() -> None:
    sums = DenseSums(WorkerSet.of([0, 1]), 0, 1)
    huge = SumPiece(named().name, np.full(4, 3e38, np.float32))
    sums.add(0, huge)
    total = sums.add(1, huge)
    assert total is not None
    assert np.isinf(total.piece.values).all()
