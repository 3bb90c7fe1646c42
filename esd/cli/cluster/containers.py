"""Says which containers a cluster consists of, host by host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from esd.cli.cluster.config import Cluster, Host
from services.domain.links import parse_link

_USER = "10001:10001"
_REDIS_USER = "999:999"


@dataclass(frozen=True, slots=True)
class Container:
    """One container, in the host's network: rows should not pass through an overlay.

    Attributes:
        host: where it runs.
        service: what it is; its name is that of the cluster and this.
        image: with tag.
        user: numeric.
        command: what it runs.
        environment: of the service.
        health: the command that finds out how it is.
        volumes: name of the volume by its place.
        gpu: whether it needs one.
    """

    host: Host
    service: str
    image: str
    user: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: tuple[str, ...]
    volumes: Mapping[str, str] = field(default_factory=dict)
    gpu: bool = False

    @property
    def fingerprint(self) -> str:
        """A hash that changes whenever anything about the container does."""
        described = {key: value for key, value in asdict(self).items() if key != "host"}
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def containers_of(cluster: Cluster) -> list[Container]:
    """Returns all containers of a cluster, in the order in which they start."""
    return [_redis(cluster), _parameter_server(cluster), _dispatcher(cluster), *_workers(cluster)]


def _redis(cluster: Cluster) -> Container:
    port = str(cluster.ports.redis)
    # Nobody but the parameter server beside it needs it.
    durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction")
    return Container(
        cluster.head_host,
        "redis",
        cluster.redis_image,
        _REDIS_USER,
        ("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", "/data", *durable),
        {},
        ("CMD-SHELL", f"redis-cli -p {port} ping | grep -q PONG"),
        volumes={"/data": f"{cluster.name}_redis"},
    )


def _parameter_server(cluster: Cluster) -> Container:
    head, ports = cluster.head_host, cluster.ports
    address = f"{head.address}:{ports.ps_server}"
    return Container(
        head,
        "ps_server",
        f"esd-service:{cluster.version}",
        _USER,
        ("esd", "serve", "ps"),
        {
            "ESD_PS_LISTEN": address,
            "ESD_PS_METRICS_PORT": str(ports.ps_server_metrics),
            "ESD_PS_STORE": f"redis://127.0.0.1:{ports.redis}/0",
        },
        _probe(address),
    )


def _dispatcher(cluster: Cluster) -> Container:
    head, ports = cluster.head_host, cluster.ports
    address = f"{head.address}:{ports.dispatcher}"
    return Container(
        head,
        "dispatcher",
        f"esd-service:{cluster.version}",
        _USER,
        ("esd", "serve", "dispatcher"),
        {
            "ESD_DISPATCHER_LISTEN": address,
            "ESD_DISPATCHER_METRICS_PORT": str(ports.dispatcher_metrics),
            "ESD_DISPATCHER_PAGE_PORT": str(ports.page),
        },
        _probe(address),
    )


def _workers(cluster: Cluster) -> list[Container]:
    dispatcher = f"{cluster.head_host.address}:{cluster.ports.dispatcher}"
    return [
        Container(
            host,
            "worker",
            f"{'esd-cuda' if host.gpus else 'esd-worker'}:{cluster.version}",
            _USER,
            ("esd", "serve", "worker"),
            {
                "ESD_WORKER_NAME": host.name,
                "ESD_WORKER_LISTEN": f"{host.address}:{cluster.ports.worker}",
                "ESD_WORKER_METRICS_PORT": str(cluster.ports.worker_metrics),
                "ESD_WORKER_DISPATCHER": dispatcher,
                "ESD_WORKER_LINK": repr(parse_link(host.link or "")),
                # The link between two machines is as slow as it is.
                "ESD_WORKER_SHAPE_LINK": "false",
                "ESD_WORKER_CACHE_ROWS": str(host.cache_rows),
                "ESD_WORKER_DEVICE": "cuda" if host.gpus else "cpu",
            },
            _probe(f"{host.address}:{cluster.ports.worker}"),
            gpu=bool(host.gpus),
        )
        for host in cluster.workers
    ]


def _probe(address: str) -> tuple[str, ...]:
    return ("CMD", "python3", "-m", "services.runtime.probe", address)
