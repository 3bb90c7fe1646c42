"""Real Redis Clusters: servers that share the slots of the keys among them, with or without replicas."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.free_port import free_port
from testbed.redis_server import RedisServer, redis_server

PATIENCE_SECONDS = 60.0  # for the nodes to agree
POLL_SECONDS = 0.1


@contextlib.contextmanager
def redis_cluster(directory: Path, nodes: int = 3, replicas: int = 0) -> Iterator[list[RedisServer]]:
    """A Redis Cluster of `nodes` primaries, each with `replicas` replicas: the primaries first, then the replicas.

    Its URL is `redis+cluster://` with any server's address.
    """
    with contextlib.ExitStack() as stack:
        servers = []
        # Milliseconds of silence after which a node counts as lost: few where a replica takes over.
        silence = 5000 if replicas else 15_000
        for node in range(nodes * (1 + replicas)):
            place = directory / str(node)
            place.mkdir()
            options = ("--cluster-port", str(free_port()), "--cluster-node-timeout", str(silence))
            servers.append(stack.enter_context(redis_server(place, "--cluster-enabled", "yes", *options)))
        addresses = (server.address for server in servers)
        servers[0].cli("--cluster", "create", *addresses, "--cluster-replicas", str(replicas), "--cluster-yes")
        await_cluster(servers)
        await_replicas(servers, nodes * replicas)
        yield servers


def await_cluster(servers: list[RedisServer]) -> None:
    """Returns when every node reports that all slots are served."""
    _await(lambda: all("cluster_state:ok" in server.cli("cluster", "info") for server in servers), "all slots served")


def await_replicas(servers: list[RedisServer], count: int) -> None:
    """Returns when `count` replicas have all data of their primaries."""

    def ready() -> int:
        return sum("master_link_status:up" in server.cli("info", "replication") for server in servers)

    _await(lambda: ready() >= count, "all replicas up to date")


def await_takeover(lost: RedisServer, others: list[RedisServer]) -> None:
    """Returns when the other nodes report that a replica serves the slots of the lost primary."""
    _await(lambda: not any(_serves(lost, server) for server in others), "a replica serving in its primary's place")


def await_ping(server: RedisServer) -> None:
    """Returns when the parameter server has renewed its sign of life in Redis."""
    before = server.cli("get", "esd:pulse:0:0")
    _await(lambda: server.cli("get", "esd:pulse:0:0") != before, "another pulse of the parameter server")


def _await(condition: Callable[[], bool], state: str) -> None:
    """Polls with pauses, because each question starts a process of redis-cli."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"Redis has not reached this state after {PATIENCE_SECONDS} s: {state}")
        time.sleep(POLL_SECONDS)


def _serves(node: RedisServer, asked: RedisServer) -> bool:
    lines = asked.cli("cluster", "nodes").splitlines()
    (fields,) = (line.split() for line in lines if f" {node.address}@" in line)
    return len(fields) > 8  # the slots come last
