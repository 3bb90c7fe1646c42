"""The way to sum dense gradients that links decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from esd.services.domain.auto_sum import sum_for_links, with_chosen_sum
from esd.services.domain.dense_sums import ALL_REDUCE, AUTO, ServerSum, parse_dense_sum
from esd.services.domain.units import parse_speed
from tests.support.simple_clients import JOB


def chosen(links: str, lan: str = "", shards: int = 1) -> str:
    speeds = [parse_speed(link) for link in links.split(",")]
    return str(sum_for_links(speeds, [parse_speed(lan) if lan else None] * len(speeds), shards))


@pytest.mark.parametrize(
    ("links", "way"),
    [
        ("10m,10m", "server"),  # as many bytes as in the ring, and fewer round trips
        ("20m,16m,20m,16m", "server"),
        ("100m,100m,10m,10m", "server"),
        ("1g,1g,100m,100m", "server"),
        ("5g,5g,5g,5g,500m,500m,500m,500m", "server"),  # slow for its neighbours, whose servers have their speed
        ("500m,500m", "all-reduce"),  # the servers would be full
        ("500m,500m,500m,500m", "all-reduce"),
        ("10g,10g", "all-reduce"),
        ("10m", "all-reduce"),  # alone: nothing is summed
    ],
)
def test_slow_or_unequal_links_are_summed_for_at_the_server(links: str, way: str) -> None:
    assert chosen(links) == way


def test_more_servers_have_room_for_faster_links() -> None:
    assert [chosen("300m,300m,300m,300m", shards=shards) for shards in (1, 2)] == ["all-reduce", "server"]


def test_a_second_network_that_is_faster_keeps_the_ring() -> None:
    slow = "10m,10m,10m,10m"
    assert [chosen(slow, lan) for lan in ("1g", "16m", "15m")] == ["all-reduce", "all-reduce", "server"]
    assert str(sum_for_links([1e6, 1e6], [1e9, None])) == "server", "the ring waits for the worker without one"


def test_only_a_job_that_leaves_it_open_is_given_a_way() -> None:
    links = [1e6, 1e6]
    assert with_chosen_sum(replace(JOB, dense_sum=AUTO), links) == replace(JOB, dense_sum=ServerSum())
    for way in (ALL_REDUCE, parse_dense_sum("low-rank:4")):
        named = replace(JOB, dense_sum=way)
        assert with_chosen_sum(named, links) is named
