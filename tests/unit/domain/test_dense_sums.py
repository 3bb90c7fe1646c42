"""The ways to sum dense gradients: their names, and the bytes that they move."""

from __future__ import annotations

import pytest

from esd.services.domain.dense_sums import AllReduce, Auto, DenseSum, LowRank, ServerSum, parse_dense_sum
from esd.services.domain.errors import InvalidArgument


@pytest.mark.parametrize("way", [Auto(), AllReduce(), ServerSum(), LowRank(8)], ids=str)
def test_a_way_is_read_as_it_is_written(way: DenseSum) -> None:
    assert parse_dense_sum(str(way)) == way


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--dense '' is unknown; there are auto, all-reduce, server, low-rank:RANK"),
        ("ring", "--dense 'ring' is unknown"),
        (" server", "--dense ' server' is unknown"),
        ("server:2", "--dense 'server:2' is not of the form server$"),
        ("low-rank", "--dense 'low-rank' is not of the form low-rank:RANK"),
        ("low-rank:", "is not of the form low-rank:RANK"),
        ("low-rank:1:2", "is not of the form low-rank:RANK"),
        ("low-rank:-1", "is not of the form low-rank:RANK"),
        ("low-rank:0", r"the rank is 0, it must be in 1\.\.1024"),
        ("low-rank:1025", "the rank is 1025"),
    ],
)
def test_another_text_is_refused_with_what_it_must_be(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        parse_dense_sum(text)


@pytest.mark.parametrize(
    ("way", "of_workers"),
    [(AllReduce(), [0, 4, 8, 12]), (ServerSum(), [0, 1, 1, 1]), (LowRank(8), [0, 2, 2, 2])],
    ids=str,
)
def test_a_sum_takes_round_trips_by_its_way_and_a_single_worker_none(way: DenseSum, of_workers: list[int]) -> None:
    assert [way.round_trips(workers) for workers in range(1, 5)] == of_workers


def test_factors_stand_for_the_matrices_that_they_shrink() -> None:
    shapes = [(256, 1807), (256,), (128, 256), (1, 128), (16, 17), (17, 17)]
    assert ServerSum().dense_floats(shapes) == 256 * 1807 + 256 + 128 * 256 + 128 + 16 * 17 + 17 * 17
    assert LowRank(8).dense_floats(shapes) == 8 * (256 + 1807) + 256 + 8 * (128 + 256) + 128 + 16 * 17 + 8 * (17 + 17)


def test_a_ring_sends_more_the_more_workers_there_are_and_a_server_gets_each_value_once() -> None:
    assert [AllReduce().sent_bytes(100, workers) for workers in (1, 2, 4)] == [0, 400, 600]
    assert [ServerSum().sent_bytes(100, workers) for workers in (1, 2, 4)] == [0, 400, 400]
