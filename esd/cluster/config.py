"""The file that describes a cluster; example.toml is one to begin with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from esd.cluster.further import OfDispatcher, OfParameterServer, OfWorker
from esd.cluster.services import SERVICES
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sites import LONGEST_SITE
from esd.services.domain.units import parse_size
from esd.services.runtime.documents import read_toml
from esd.services.runtime.mistakes import Place, mistakes
from esd.services.runtime.quantities import Size, Speed

CLIENT = "client"  # the name of the driver's certificate, and of its folder in `certificates`


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Host(_Section):
    """A machine of the cluster, and its services.

    Attributes:
        name: unique in the cluster.
        engine: where its container engine is: `ssh://user@machine`, or `unix:///path` for this machine's; none: its
            services are units of systemd (`esd cluster kit`).
        address: at which the other machines reach it.
        link: of its worker to the parameter server, bytes per second, written 500m (bits); none: no worker.
        lan: of a second network, in which `address` is, to the other workers; none: they share the link.
        site: of its worker, where samples stay at their sites; none: it is at none.
        site_values: folder on the machine with the values of this site (`esd data site-values`); none: there are none.
        cache_rows: of its worker.
        memory: limit of its worker, bytes, written 2g.
        gpus: 1: its worker trains on a GPU.
        settings: of its worker, by name, which win over the settings of all workers.
    """

    name: str = Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$")
    engine: str | None = Field(None, pattern=r"^(ssh|unix|tcp)://")
    address: str = Field(min_length=1)
    link: Speed | None = None
    lan: Speed | None = None
    site: str | None = Field(None, min_length=1, max_length=LONGEST_SITE)
    site_values: str | None = Field(None, pattern="^/")
    cache_rows: int = Field(int(SERVICES.worker.settings["cache_rows"]), ge=1)
    memory: Size = SERVICES.worker.memory
    gpus: int = Field(0, ge=0, le=1)
    settings: OfWorker = {}


class Ports(_Section):
    """The ports that the services take. All are on the head but the worker's, which is the same on every host."""

    redis: int = 6379
    ps_server: int = SERVICES.ps_server.ports["grpc"]
    ps_server_metrics: int = SERVICES.ps_server.ports["metrics"]
    dispatcher: int = SERVICES.dispatcher.ports["grpc"]
    dispatcher_metrics: int = SERVICES.dispatcher.ports["metrics"]
    page: int = SERVICES.dispatcher.ports["page"]
    worker: int = SERVICES.worker.ports["grpc"]
    worker_metrics: int = SERVICES.worker.ports["metrics"]


class MemoryLimits(_Section):
    """Limits of the containers on the head, in bytes. The kernel ends a container beyond its limit; it is restarted.

    Rows may take half of the memory of Redis, which takes up to twice as much while it rewrites its file.
    """

    redis: Size = parse_size("2g")
    ps_server: Size = SERVICES.ps_server.memory
    dispatcher: Size = SERVICES.dispatcher.memory

    @property
    def redis_rows(self) -> int:
        """Bytes of Redis's memory that rows may take."""
        return self.redis // 2


class FurtherSettings(_Section):
    """Settings of the services, by the names of `esd serve`, beside those that follow from the other keys."""

    ps_server: OfParameterServer = {}
    dispatcher: OfDispatcher = {}
    worker: OfWorker = {}


class Cluster(_Section):
    """A cluster file: all machines, and their common settings.

    Attributes:
        name: prefix of containers and volumes.
        version: tag of the images; `local` are those that `docker compose build` makes of a source tree.
        redis_image: the image of Redis.
        head: name of the host that runs Redis, parameter server and dispatcher.
        tls: whether every channel is encrypted and asks for certificate and token, and Redis for a password.
        certificates: folder of these files, relative to the cluster file; missing files are made.
        code: folder of models of one's own, relative to the file, which every worker gets; none: there is none.
        hosts: the machines.
        ports: of the services.
        memory: limits of the containers on the head; a worker's limit is its host's.
        settings: further ones of the services.
    """

    name: str = Field("esd", pattern=r"^[a-z0-9][a-z0-9_-]*$")
    version: str = "local"
    redis_image: str = "redis:7.4.11-bookworm@sha256:4fa24486b8bcca8eec45ee0eb166edc674795e53a2b53d1a9ef263eecebaac85"
    tls: bool = True
    certificates: Path = Path("certs")
    code: Path | None = None
    head: str
    hosts: tuple[Host, ...] = Field(min_length=1)
    ports: Ports = Ports()
    memory: MemoryLimits = MemoryLimits()
    settings: FurtherSettings = FurtherSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [host.name for host in self.hosts]
        if len(set(names)) < len(names):
            raise ValueError("two hosts have the same name")
        if self.head not in names:
            raise ValueError(f"head {self.head!r} is none of the hosts: {', '.join(names)}")
        if not self.workers:
            raise ValueError("no host has a link, so there is no worker")
        for host in self.hosts:
            if host.lan is not None and host.link is None:
                raise ValueError(f"host {host.name} has a lan and no link: only workers have a second network")
            if host.site is not None and host.link is None:
                raise ValueError(f"host {host.name} has a site and no link: only workers have sites")
            if host.settings and host.link is None:
                raise ValueError(f"host {host.name} has settings and no link: they would be of its worker")
            if host.site_values is not None and host.site is None:
                raise ValueError(f"host {host.name} has site_values and no site, of which they would be")
        return self

    @property
    def head_host(self) -> Host:
        """The host that runs Redis, parameter server and dispatcher."""
        return next(host for host in self.hosts if host.name == self.head)

    @property
    def engine_hosts(self) -> tuple[Host, ...]:
        """The hosts with a container engine."""
        return tuple(host for host in self.hosts if host.engine is not None)

    @property
    def workers(self) -> tuple[Host, ...]:
        """The hosts that train."""
        return tuple(host for host in self.hosts if host.link is not None)


def read_cluster(path: Path) -> Cluster:
    """Reads a cluster file.

    Raises:
        InvalidArgument: it is not there or cannot be read; all mistakes are listed with their place.
    """
    if not path.exists():
        raise InvalidArgument(f"there is no cluster file {path}: `esd cluster example` prints one to begin with")
    document = read_toml(path, str(path))
    try:
        cluster = Cluster.model_validate(document)
    except ValidationError as error:
        listed = mistakes(error, document, _keys)
        raise InvalidArgument(f"{path}:" + "".join(f"\n  {mistake}" for mistake in listed)) from None
    code = None if cluster.code is None else path.parent / cluster.code
    return cluster.model_copy(update={"certificates": path.parent / cluster.certificates, "code": code})


def _keys(place: Place) -> Iterable[str]:
    """Returns the keys that the values at a place of the file may have."""
    kinds: dict[str | int, type[_Section]] = {
        "hosts": Host, "ports": Ports, "memory": MemoryLimits, "settings": FurtherSettings,
    }  # fmt: skip
    return (kinds[place[0]] if place else Cluster).model_fields
