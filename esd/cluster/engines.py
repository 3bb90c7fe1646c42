"""The container engines of a cluster's machines, through the docker package."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest, Healthcheck, LogConfig
from requests import RequestException

from esd.cluster.code import Files
from esd.cluster.concurrently import for_each
from esd.cluster.config import Cluster, Host
from esd.cluster.containers import Container
from esd.cluster.events import ContainerVisited, ImageCopied, StepListener, ignore
from esd.cluster.services import SERVICES
from esd.services.domain.errors import FailedPrecondition, Unavailable

_CLUSTER, _SERVICE, _FINGERPRINT, _FILES = "esd.cluster", "esd.service", "esd.fingerprint", "esd.files"
_SECOND = 10**9  # in the engine's unit
_SSH_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Found:
    """A container as its engine knows it.

    Attributes:
        host: name of its host.
        service: name of its service.
        state: whether it runs, in the engine's words.
        health: the same of its health; empty: it has no check.
        said: the last line of its standard output, while it starts: how far it has loaded its rows.
    """

    host: str
    service: str
    state: str
    health: str
    said: str = ""


class Engines:
    """One client for each host of a cluster; `connected` makes it."""

    def __init__(self, cluster: Cluster, clients: dict[str, docker.DockerClient], listener: StepListener) -> None:
        self._cluster = cluster
        self._listener = listener
        self._clients = clients

    def start(self, containers: Sequence[Container]) -> None:
        """Starts the containers that do not run as described; in their order on each host, and hosts at once.

        Raises:
            FailedPrecondition: an image is neither on a host nor here; a host has another thing in the way.
            Unavailable: an engine goes away.
        """

        def start_on(host: Host) -> None:
            for container in containers:
                if container.host == host:
                    self._listener(ContainerVisited(host.name, container.service))
                    self._start(container)

        for_each(start_on, self._cluster.engine_hosts)

    def _start(self, container: Container) -> None:
        client = self._clients[container.host.name]
        name = f"{self._cluster.name}_{container.service}_{container.host.name}"
        with _translated(container.host):
            before = None
            with suppress(NotFound):
                before = client.containers.get(name)
            if before and before.status == "running" and before.labels.get(_FINGERPRINT) == container.fingerprint:
                return
            image = self._provide_image(client, container)
            if before:  # it serves until there is an image to take its place
                before.remove(force=True)
            for volume in container.volumes.values():
                client.volumes.create(volume, labels={_CLUSTER: self._cluster.name})
            filled = {folder: f"{name}_{PurePosixPath(folder).name}" for folder in container.files}
            for folder, volume in filled.items():
                self._fill(client, container, image, volume, folder)
            client.containers.run(name=name, **_arguments(self._cluster, container, image, filled))

    def found(self) -> list[Found]:
        """Returns all containers of the cluster, in any state."""
        hosts = {host.name: host for host in self._cluster.engine_hosts}

        def found(name: str, container: Any) -> Found:
            health = container.attrs["State"].get("Health", {}).get("Status", "")
            lines: list[bytes] = []
            if container.status == "running" and health not in ("", "healthy"):
                with _translated(hosts[name]):
                    # An engine may count lines of standard error, too, so more than the last line is asked for.
                    lines = container.logs(stdout=True, stderr=False, tail=20).splitlines()
            said = lines[-1].decode(errors="replace") if lines else ""
            return Found(name, container.labels[_SERVICE], container.status, health, said)

        return [found(name, container) for name, container in self._containers()]

    def remove(self, *, volumes: bool) -> None:
        """Removes all containers of the cluster, workers first, and their volumes if asked to.

        Raises:
            Unavailable: an engine goes away, or does not do it.
        """
        hosts = {host.name: host for host in self._cluster.engine_hosts}

        def stop_and_remove(found: tuple[str, Any]) -> None:
            name, container = found
            with _translated(hosts[name]):
                container.stop(timeout=SERVICES.stop_seconds)
                container.remove()

        containers = self._containers()
        for service in ("worker", "dispatcher", "ps_server", "redis"):
            for_each(stop_and_remove, [each for each in containers if each[1].labels[_SERVICE] == service])
        for label in (_FILES, _CLUSTER) if volumes else (_FILES,):  # secrets stay on no machine that serves no more
            wanted = {"label": f"{label}={self._cluster.name}"}
            for host in self._cluster.engine_hosts:
                with _translated(host):
                    for volume in self._clients[host.name].volumes.list(filters=wanted):
                        volume.remove()

    def _containers(self) -> list[tuple[str, Any]]:
        label = f"{_CLUSTER}={self._cluster.name}"

        def containers_on(host: Host) -> list[tuple[str, Any]]:
            with _translated(host):
                listed = self._clients[host.name].containers.list(all=True, filters={"label": label})
            return [(host.name, each) for each in listed]

        return list(chain.from_iterable(for_each(containers_on, self._cluster.engine_hosts)))

    def _fill(self, client: docker.DockerClient, container: Container, image: str, volume: str, folder: str) -> None:
        """Makes a volume of a container's files in a folder, by way of a container that never runs."""
        with suppress(NotFound):
            client.volumes.get(volume).remove()  # with what was in it before
        client.volumes.create(volume, labels={_FILES: self._cluster.name})
        carrier = client.containers.create(
            image, command=["true"], network_mode="none", volumes={volume: {"bind": folder, "mode": "rw"}}
        )
        try:
            carrier.put_archive(folder, _archive(container.files[folder], container.user))
        finally:
            carrier.remove()

    def _provide_image(self, client: docker.DockerClient, container: Container) -> str:
        """Copies an image from this machine's engine to a host that lacks it; returns its name on the host.

        That is the image's id where it is named by a digest, which an engine knows of pulled images only.
        """
        with suppress(ImageNotFound):
            client.images.get(container.image)
            return container.image
        here = docker.from_env()
        try:
            image = here.images.get(container.image)
            name = container.image if container.image in image.tags else str(image.id)
            try:
                client.images.get(name)
            except ImageNotFound:
                _check_processor(client, container, str(image.attrs["Architecture"]))
                self._listener(ImageCopied(container.host.name, container.image))
                client.images.load(image.save(named=True))  # type: ignore[arg-type] # takes chunks as well
        except ImageNotFound:
            raise FailedPrecondition(
                f"image {container.image} is neither on {container.host.name} nor on this machine; "
                "build it (docker compose build, in the source tree of ESD), or pull it"
            ) from None
        finally:
            here.close()
        return name


def _check_processor(client: docker.DockerClient, container: Container, ours: str) -> None:
    """Refuses to copy an image for another processor, which would start and end again and again."""
    theirs = client.version()["Arch"]
    if ours != theirs:
        raise FailedPrecondition(
            f"image {container.image} of this machine is for {ours}, and {container.host.name} is {theirs}: build one "
            f"for {theirs} and load it there under the same tag"
        )


@contextmanager
def connected(cluster: Cluster, listener: StepListener = ignore) -> Iterator[Engines]:
    """Connects to all engines of a cluster. `listener` gets each step of a start, from several threads.

    Raises:
        Unavailable: an engine is out of reach; the message names its host.
    """
    with ExitStack() as stack:
        clients = {}
        for host in cluster.engine_hosts:
            with _translated(host):
                clients[host.name] = docker.DockerClient(
                    base_url=host.engine, use_ssh_client=str(host.engine).startswith("ssh://"), timeout=_SSH_SECONDS
                )
                stack.callback(clients[host.name].close)
                clients[host.name].ping()
        yield Engines(cluster, clients, listener)


def _archive(files: Files, owner: str) -> bytes:
    """Returns files, and the folders in which they are, as an archive that is readable by its owner alone."""
    user, group = map(int, owner.split(":"))
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."}
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in [*sorted(folders), *files]:
            entry = tarfile.TarInfo(name)
            entry.uid, entry.gid = user, group
            if name in folders:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o500
                archive.addfile(entry)
            else:
                entry.size, entry.mode = len(files[name]), 0o400
                archive.addfile(entry, io.BytesIO(files[name]))
    return written.getvalue()


def _arguments(cluster: Cluster, container: Container, image: str, filled: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments of the request to the engine, with the same restraints as in docker-compose.yml.

    `filled` names the volume that has the container's files of each folder.
    """
    volumes = {name: {"bind": place, "mode": "rw"} for place, name in container.volumes.items()}
    volumes |= {name: {"bind": folder, "mode": "ro"} for folder, name in filled.items()}
    volumes |= {folder: {"bind": folder, "mode": "ro"} for folder in container.reads}
    labels = {_CLUSTER: cluster.name, _SERVICE: container.service}
    return {
        "image": image,
        "command": list(container.command),
        "environment": dict(container.environment),
        "user": container.user,
        "labels": labels | {_FINGERPRINT: container.fingerprint},
        "volumes": volumes,
        "healthcheck": Healthcheck(
            test=list(container.health),
            interval=container.health_seconds * _SECOND,
            timeout=SERVICES.health.timeout_seconds * _SECOND,
            retries=SERVICES.health.retries,
            start_period=SERVICES.health.start_seconds * _SECOND,
        ),
        "device_requests": [DeviceRequest(count=1, capabilities=[["gpu"]])] if container.gpu else None,
        "detach": True,
        "init": True,
        "network_mode": "host",
        "read_only": True,
        "tmpfs": {"/tmp": "size=64m,mode=1777"},  # noqa: S108 - the container's own
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "mem_limit": container.memory,
        "pids_limit": 1024,
        "restart_policy": {"Name": "unless-stopped"},
        "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": "10m", "max-file": "3"}),
    }


@contextmanager
def _translated(host: Host) -> Iterator[None]:
    try:
        yield
    except (DockerException, RequestException) as error:  # the latter where an engine goes away, or is silent
        raise Unavailable(f"{host.name} ({host.engine}): {error}") from error
