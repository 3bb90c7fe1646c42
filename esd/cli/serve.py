"""`esd serve`: becomes one of the services, as the containers do."""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import Annotated

import typer

from esd.cli.replica import interface_of, local_address, replica_link, replica_number
from services.domain.errors import InvalidArgument


class Service(Enum):
    """The services, by the names that users know."""

    PS = "ps"
    DISPATCHER = "dispatcher"
    WORKER = "worker"


_MODULES = {Service.PS: "ps_server", Service.DISPATCHER: "dispatcher", Service.WORKER: "worker"}


def command(
    service: Annotated[Service, typer.Argument(help="ps, dispatcher or worker.")],
    links: Annotated[
        str | None,
        typer.Option(
            help="worker: it is one of several replicas of a container, and its link is at its place in this list of"
            " bits per second (500m,500m,50m,50m, or one for all). Sets name, link and advertised host."
        ),
    ] = None,
) -> None:
    """Runs one service in the foreground, configured by environment variables (see docs/operations.md)."""
    if service is Service.WORKER:
        os.environ.update(_place_of_worker(links))
    elif links is not None:
        raise InvalidArgument(f"--links is for workers, not for {service.value}")
    os.execv(sys.executable, [sys.executable, "-m", _MODULES[service]])  # noqa: S606 - replaces this process, no shell


def _place_of_worker(links: str | None) -> dict[str, str]:
    """What a worker's environment has to say about its place in the network, and in `links` if there are any."""
    dispatcher = os.environ.get("ESD_WORKER_DISPATCHER")
    if not dispatcher:
        return {}  # the worker says so itself, with all that is wrong besides
    address = local_address(dispatcher)
    # A machine may be in several networks; for the all-reduce torch would take the one that its host name stands for.
    interface = interface_of(address)
    place = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    if links is not None:
        place |= {
            "ESD_WORKER_NAME": f"worker-{replica_number(address)}",
            "ESD_WORKER_LINK": repr(replica_link(links, address)),
            "ESD_WORKER_ADVERTISE_HOST": address,
        }
    return place
