"""Says which containers a cluster consists of, host by host."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from esd.cluster.code import Files
from esd.cluster.config import Cluster, Host
from esd.cluster.secrets import PASSWORD, worker_name
from esd.cluster.services import SERVICES
from esd.services.runtime.settings import join_address

_USER = f"{SERVICES.user}:{SERVICES.user}"
_REDIS_USER = "999:999"

# The folders in which a container finds its files.
FILES = "/run/secrets"
CODE = "/code"


@dataclass(frozen=True, slots=True)
class Container:
    """One container, in the host's network: rows should not pass through an overlay.

    Attributes:
        host: where it runs.
        service: its service; the container's name is made of the cluster's name and this.
        image: with tag.
        user: numeric.
        command: its command.
        environment: of the service.
        memory: its limit, bytes.
        health: the command that finds out how it is.
        health_seconds: between two calls of it. A call starts a process, and takes half a second of a small processor.
        volumes: name of the volume by its place.
        files: its files by folder: in FILES certificate, key, token and password, in CODE the models of one's own.
        reads: folders of the machine that it reads, at the same place.
        gpu: whether it needs one.
    """

    host: Host
    service: str
    image: str
    user: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    memory: int
    health: tuple[str, ...]
    health_seconds: int
    volumes: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Files] = field(default_factory=dict, repr=False)
    reads: tuple[str, ...] = ()
    gpu: bool = False

    @property
    def fingerprint(self) -> str:
        """A hash that changes whenever anything about the container does."""
        described = {key: value for key, value in asdict(self).items() if key != "host"}
        described["files"] = {
            f"{folder}/{name}": hashlib.sha256(content).hexdigest()
            for folder, files in self.files.items()
            for name, content in files.items()
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def containers_of(
    cluster: Cluster, secrets: Mapping[str, Files] | None = None, code: Files | None = None
) -> list[Container]:
    """Returns all containers of a cluster, in the order in which they start.

    Args:
        cluster: the description.
        secrets: the files of every service, as `provide_secrets` returns them; None: everything in plaintext.
        code: the files of models of one's own, as `read_code` returns them; None: there are none.
    """
    return [
        _redis(cluster, secrets),
        _parameter_server(cluster, secrets),
        _dispatcher(cluster, secrets),
        *(_worker(cluster, host, secrets, code) for host in cluster.workers),
    ]


def redis_options(cluster: Cluster, directory: str) -> dict[str, str]:
    """Returns the settings of Redis by their names, without its password.

    Only the parameter server beside it needs it, and every write is on its disk before it is answered.
    """
    return {
        "bind": "127.0.0.1",
        "port": str(cluster.ports.redis),
        "dir": directory,
        "appendonly": "yes",
        "appendfsync": "always",
        "save": '""',
        "maxmemory": str(cluster.memory.redis_rows),
        "maxmemory-policy": "noeviction",
    }


def _redis(cluster: Cluster, secrets: Mapping[str, Files] | None) -> Container:
    # The password comes on standard input: a command line and an environment can be seen from outside.
    configuration = f"requirepass $(cat {FILES}/{PASSWORD})" if secrets else ""
    options = " ".join(f"--{name} {value}" for name, value in redis_options(cluster, "/data").items())
    script = f"""exec redis-server - {options} <<SECRET
{configuration}
SECRET
"""
    password = f"REDISCLI_AUTH=$(cat {FILES}/{PASSWORD}) " if secrets else ""
    return Container(
        cluster.head_host,
        "redis",
        cluster.redis_image,
        _REDIS_USER,
        ("sh", "-ec", script),
        {},
        cluster.memory.redis,
        ("CMD-SHELL", f"{password}redis-cli -p {cluster.ports.redis} ping | grep -q PONG"),
        3,
        volumes={"/data": f"{cluster.name}_redis"},
        files=_secret_files("redis", secrets),
    )


def _parameter_server(cluster: Cluster, secrets: Mapping[str, Files] | None) -> Container:
    service, head, ports = SERVICES.ps_server, cluster.head_host, cluster.ports
    address = join_address(head.address, ports.ps_server)
    password = {"ESD_PS_STORE_PASSWORD_FILE": f"{FILES}/{PASSWORD}"} if secrets else {}
    return Container(
        head,
        "ps_server",
        f"{service.image}:{cluster.version}",
        _USER,
        service.command,
        service.environment(head.address, {"grpc": ports.ps_server, "metrics": ports.ps_server_metrics})
        | _passed()
        | _further("ESD_PS", cluster.settings.ps_server)
        | {"ESD_PS_STORE": f"redis://127.0.0.1:{ports.redis}/0"}
        | password
        | _secured("ESD_PS", secrets),
        cluster.memory.ps_server,
        _probe(address),
        service.health_seconds,
        files=_secret_files("ps_server", secrets),
    )


def _dispatcher(cluster: Cluster, secrets: Mapping[str, Files] | None) -> Container:
    service, head, ports = SERVICES.dispatcher, cluster.head_host, cluster.ports
    address = join_address(head.address, ports.dispatcher)
    served = {"grpc": ports.dispatcher, "metrics": ports.dispatcher_metrics, "page": ports.page}
    return Container(
        head,
        "dispatcher",
        f"{service.image}:{cluster.version}",
        _USER,
        service.command,
        service.environment(head.address, served)
        | _passed()
        | _further("ESD_DISPATCHER", cluster.settings.dispatcher)
        | _secured("ESD_DISPATCHER", secrets),
        cluster.memory.dispatcher,
        _probe(address),
        service.health_seconds,
        files=_secret_files("dispatcher", secrets),
    )


def _worker(cluster: Cluster, host: Host, secrets: Mapping[str, Files] | None, code: Files | None) -> Container:
    service, ports = SERVICES.worker, cluster.ports
    address = join_address(host.address, ports.worker)
    return Container(
        host,
        "worker",
        f"{service.cuda_image if host.gpus else service.image}:{cluster.version}",
        _USER,
        service.command,
        service.environment(host.address, {"grpc": ports.worker, "metrics": ports.worker_metrics})
        | _passed()
        | _further("ESD_WORKER", {**cluster.settings.worker, **host.settings})
        | {
            "ESD_WORKER_NAME": host.name,
            "ESD_WORKER_DISPATCHER": join_address(cluster.head_host.address, ports.dispatcher),
            "ESD_WORKER_LINK": repr(host.link),
            # The link between two machines is as slow as it is.
            "ESD_WORKER_SHAPE_LINK": "false",
            "ESD_WORKER_CACHE_ROWS": str(host.cache_rows),
            "ESD_WORKER_DEVICE": "cuda" if host.gpus else "cpu",
        }
        | ({} if host.site is None else {"ESD_WORKER_SITE": host.site})
        | ({} if host.site_values is None else {"ESD_WORKER_SITE_VALUES": host.site_values})
        | ({} if host.lan is None else {"ESD_WORKER_LAN": repr(host.lan)})
        | ({"ESD_WORKER_CODE": CODE} if code else {})
        | _secured("ESD_WORKER", secrets),
        host.memory,
        _probe(address),
        service.health_seconds,
        files=_secret_files(worker_name(host), secrets) | ({CODE: code} if code else {}),
        reads=() if host.site_values is None else (host.site_values,),
        gpu=bool(host.gpus),
    )


def _passed() -> dict[str, str]:
    """Returns the variables that services take over from the environment of this command."""
    return {name: os.environ[name] for name in SERVICES.passed if name in os.environ}


def _further(prefix: str, settings: Mapping[str, object]) -> dict[str, str]:
    return {f"{prefix}_{name}".upper(): str(value) for name, value in settings.items()}


def _secret_files(service: str, secrets: Mapping[str, Files] | None) -> dict[str, Files]:
    return {FILES: secrets[service]} if secrets else {}


def _secured(prefix: str, secrets: Mapping[str, Files] | None) -> dict[str, str]:
    """Returns the settings of a service with its own files; the rights of its callers follow from their names."""
    if not secrets:
        return {}
    return {
        f"{prefix}_TLS_CA": f"{FILES}/ca.crt",
        f"{prefix}_TLS_CERTIFICATE": f"{FILES}/tls.crt",
        f"{prefix}_TLS_KEY": f"{FILES}/tls.key",
        f"{prefix}_TLS_CLIENTS": "*",
        f"{prefix}_TOKEN_FILE": f"{FILES}/token",
    }


def _probe(address: str) -> tuple[str, ...]:
    return ("CMD", "python3", "-m", "esd.services.runtime.probe", address)
