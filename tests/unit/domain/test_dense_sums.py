"""The ways to sum dense gradients: their names, and the bytes that they move."""

from __future__ import annotations

import pytest

from esd.services.domain.dense_sums import DENSE_SUMS, AllReduce, ServerSum, parse_dense_sum
from esd.services.domain.errors import InvalidArgument


@pytest.mark.parametrize("name", DENSE_SUMS)
def test_a_way_is_read_by_its_name(name: str) -> None:
    assert parse_dense_sum(name) == DENSE_SUMS[name]()
    assert str(parse_dense_sum(name)) == name


@pytest.mark.parametrize("text", ["", "ring", "server:2", "Server", " server"])
def test_another_name_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"--dense .* is unknown; there are all-reduce, server"):
        parse_dense_sum(text)


def test_a_ring_sends_more_the_more_workers_there_are_and_a_server_gets_each_value_once() -> None:
    assert [AllReduce().sent_bytes(100, workers) for workers in (1, 2, 4)] == [0, 400, 600]
    assert [ServerSum().sent_bytes(100, workers) for workers in (1, 2, 4)] == [0, 400, 400]
