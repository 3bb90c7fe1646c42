"""The ways to sum dense gradients: their names, and the bytes that they move."""

from __future__ import annotations

import pytest

from esd.services.domain.dense_sums import AllReduce, Auto, DenseSum, Every, LowRank, ServerSum, parse_dense_sum
from esd.services.domain.errors import InvalidArgument


@pytest.mark.parametrize("way", [Auto(), AllReduce(), ServerSum(), LowRank(8), Every(16)], ids=str)
def test_a_way_is_read_as_it_is_written(way: DenseSum) -> None:
    assert parse_dense_sum(str(way)) == way


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--dense '' is unknown; there are auto, all-reduce, server, low-rank:RANK, every:ITERATIONS"),
        ("ring", "--dense 'ring' is unknown"),
        (" server", "--dense ' server' is unknown"),
        ("server:2", "--dense 'server:2' is not of the form server$"),
        ("low-rank", "--dense 'low-rank' is not of the form low-rank:RANK"),
        ("low-rank:", "is not of the form low-rank:RANK"),
        ("low-rank:1:2", "is not of the form low-rank:RANK"),
        ("low-rank:-1", "is not of the form low-rank:RANK"),
        ("low-rank:0", r"the rank is 0, it must be in 1\.\.1024"),
        ("low-rank:1025", "the rank is 1025"),
        ("every", "--dense 'every' is not of the form every:ITERATIONS"),
        ("every:0", r"averages are made every 0 iterations, it must be 1\.\.65536 \(--dense every:H\)"),
        ("every:65537", "every 65537 iterations"),
    ],
)
def test_another_text_is_refused_with_what_it_must_be(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        parse_dense_sum(text)


@pytest.mark.parametrize(
    ("way", "of_workers"),
    [(AllReduce(), [0, 4, 8, 12]), (ServerSum(), [0, 1, 1, 1]), (LowRank(8), [0, 2, 2, 2]), (Every(8), [0, 1, 1, 1])],
    ids=str,
)
def test_a_sum_takes_round_trips_by_its_way_and_a_single_worker_none(way: DenseSum, of_workers: list[int]) -> None:
    assert [way.round_trips(workers) for workers in range(1, 5)] == of_workers


def test_factors_stand_for_the_matrices_that_they_shrink() -> None:
    shapes = [(256, 1807), (256,), (128, 256), (1, 128), (16, 17), (17, 17)]
    assert ServerSum().dense_floats(shapes, 3) == 256 * 1807 + 256 + 128 * 256 + 128 + 16 * 17 + 17 * 17
    factors = 8 * (256 + 1807) + 8 * (128 + 256) + 8 * (17 + 17)
    assert LowRank(8).dense_floats(shapes, 3) == factors + 256 + 128 + 16 * 17


def test_an_average_is_due_with_the_last_of_so_many_iterations_and_moves_the_moments_of_the_optimizer_too() -> None:
    assert [Every(3).due(iteration) for iteration in range(7)] == [False, False, True, False, False, True, False]
    shapes = [(256, 1807), (256,)]
    values = 256 * 1807 + 256
    assert Every(1).dense_floats(shapes, 1) == 1 + values + 1, "the barrier, and the number of samples"
    assert Every(16).dense_floats(shapes, 3) == 1 + -(-(3 * values + 1) // 16)
    assert Every(16).sent_bytes(100, 4) == 400, "gradients of replicated rows are summed whole"


def test_a_ring_sends_more_the_more_workers_there_are_and_a_server_gets_each_value_once() -> None:
    assert [AllReduce().sent_bytes(100, workers) for workers in (1, 2, 4)] == [0, 400, 600]
    assert [ServerSum().sent_bytes(100, workers) for workers in (1, 2, 4)] == [0, 400, 400]
