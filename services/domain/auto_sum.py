"""The choice of a way to sum dense gradients by the links of the workers, for jobs that leave it open (`auto`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from esd.services.domain.dense_sums import ALL_REDUCE, AUTO, DenseSum, ServerSum
from esd.services.domain.jobs import JobSpec
from esd.services.domain.units import parse_speed

SERVER_LINK = parse_speed("1g")  # of a parameter server, unless a worker has a faster one: servers report no link


def with_chosen_sum(job: JobSpec, links: Sequence[float], second: Sequence[float | None] = ()) -> JobSpec:
    """Returns a job with the way to sum that suits its links, unless the job names a way.

    Args:
        job: the job.
        links: bytes per second of each worker's link, [n].
        second: of each worker's second network, which a ring takes, [n]; None: it has none. Empty: no worker has one.
    """
    if job.dense_sum != AUTO:
        return job
    return replace(job, dense_sum=sum_for_links(links, second, len(job.parameter_servers)))


def sum_for_links(links: Sequence[float], second: Sequence[float | None] = (), shards: int = 1) -> DenseSum:
    """Returns `server` where links are slow or unequal, and else `all-reduce`. It depends on nothing but its arguments.

    For D bytes of gradients `server` takes the time of D on the slowest link B, the least that any exact way takes,
    unless the parameter servers, which carry n D each way, take longer. So it is chosen if n B is less than their links
    carry together, 1 Gbit/s each, or as much as the fastest worker's. It is not chosen if a second network carries the
    2 (n-1)/n D of a ring in less time. A single worker sums nothing.

    >>> [str(sum_for_links([speed] * 4)) for speed in (12.5e6, 62.5e6)]  # 100 and 500 Mbit/s
    ['server', 'all-reduce']
    >>> str(sum_for_links([625e6] * 4 + [62.5e6] * 4))  # 5 and 0.5 Gbit/s
    'server'

    Args:
        links: bytes per second of each worker's link, [n].
        second: as for `with_chosen_sum`.
        shards: number of parameter servers.
    """
    workers, slowest = len(links), min(links)
    has_room = workers * slowest < shards * max(SERVER_LINK, *links)
    ring = min(own or link for own, link in zip(second or [None] * workers, links, strict=True))
    return ServerSum() if has_room and workers * ring <= 2 * (workers - 1) * slowest else ALL_REDUCE
