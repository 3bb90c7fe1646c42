"""Finds out which of a service's replicas this container is, and where the others reach it.

Compose gives all replicas of a service the same environment, so the speed of a worker's link is
picked from a list by the container's number. The engine's DNS knows that number: it is part of the name that belongs to
the container's address. A swarm's DNS does not, but a swarm can pass it to each container in a variable.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import re
import socket
import struct
from pathlib import Path

from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from esd.services.domain.units import parse_speed
from esd.services.runtime.settings import split_address

# Docker's resolver, in every container of a network that a user made.
RESOLVER = ("127.0.0.11", 53)
_SECONDS = 5.0

_PTR, _INTERNET = 12, 1
_GET_INTERFACE_ADDRESS = 0x8915  # SIOCGIFADDR of Linux, which knows IPv4 alone
_INTERFACES_IPV6 = Path("/proc/net/if_inet6")  # a line for each address, which is first in it; the name is last

# Set to {{.Task.Slot}} by deploy/stack.
NUMBER_VARIABLE = "ESD_REPLICA"

# esd_worker_3 (compose 1), esd-worker-3 (compose 2)
_NUMBERED = re.compile(r".+?[_-](\d+)")


def local_address(peer: str) -> str:
    """Returns this machine's address on the network through which it reaches `host:port`.

    Raises:
        Unavailable: there is no such host, or no way to it.
    """
    try:
        family, _, _, _, place = socket.getaddrinfo(*split_address(peer), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # sends nothing, but chooses the route
            return str(probe.getsockname()[0])
    except OSError as error:
        raise Unavailable(f"there is no way to {peer}: {error.strerror}") from error


def interface_of(address: str) -> str:
    """Returns the name of the network interface that has an address."""
    if ":" in address:
        bare = ipaddress.ip_address(address.partition("%")[0])
        with _INTERFACES_IPV6.open() as known:
            for packed, *_, name in map(str.split, known):
                if int(packed, 16) == int(bare):
                    return name
        raise FailedPrecondition(f"no network interface has the address {address}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _GET_INTERFACE_ADDRESS, struct.pack("256s", name.encode()))
            except OSError:  # an interface without an address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    raise FailedPrecondition(f"no network interface has the address {address}")


def replica_number(address: str, resolver: tuple[str, int] = RESOLVER) -> int:
    """Returns the number of the container with an address, 1 or more.

    Args:
        address: of a container, on a network of its own making.
        resolver: host and port of the DNS server that knows containers by address.

    Raises:
        Unavailable: the resolver does not answer.
        FailedPrecondition: the container's name has no number.
    """
    told = os.environ.get(NUMBER_VARIABLE, "")
    name = f"{NUMBER_VARIABLE}_{told}" if told else _container_name(address, resolver)
    numbered = _NUMBERED.fullmatch(name)
    if numbered is None or int(numbered[1]) < 1:
        raise FailedPrecondition(
            f"container {name or address} is not one of several replicas, such as esd_worker_3; "
            "set ESD_WORKER_NAME and ESD_WORKER_LINK instead of --links"
        )
    return int(numbered[1])


def replica_link(links: str, address: str) -> float:
    """Picks this replica's link from a list of speeds in bits per second. Returns bytes per second.

    A list of one speed is for all replicas.

    Raises:
        InvalidArgument: the list is malformed, or has no entry for this replica.
    """
    speeds = [parse_speed(speed) for speed in links.split(",")]
    if len(speeds) == 1:
        return speeds[0]
    number = replica_number(address)
    if number > len(speeds):
        raise InvalidArgument(f"links {links!r} names {len(speeds)} links, this is replica {number}: add one to LINKS")
    return speeds[number - 1]


def _container_name(address: str, resolver: tuple[str, int]) -> str:
    """Asks for the name of an address. Returns it without its network's name, empty if there is none.

    The C library would look into /etc/hosts first, where only the container's id is.
    """
    labels = [label.encode() for label in ipaddress.ip_address(address).reverse_pointer.split(".")]
    question = b"".join(bytes([len(label)]) + label for label in labels) + struct.pack(">BHH", 0, _PTR, _INTERNET)
    one_recursive_question = struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(resolver)
            connection.send(one_recursive_question + question)
            answer = connection.recv(512)
    except OSError as error:
        raise Unavailable(f"no answer from Docker's resolver {resolver[0]}: {error}") from error
    if struct.unpack_from(">H", answer, 6) == (0,):
        return ""
    return _domain(answer, len(one_recursive_question) + len(question))


def _domain(answer: bytes, record: int) -> str:
    """Reads the domain name of the record at an offset of a DNS answer, without its last label, the network's name."""
    while answer[record] and answer[record] < 0xC0:  # the record's owner: labels, or a pointer to them
        record += 1 + answer[record]
    record += 2 if answer[record] else 1
    labels, position = [], record + 10  # type, class, time to live, length
    while length := answer[position]:
        labels.append(answer[position + 1 : position + 1 + length].decode())
        position += 1 + length
    return ".".join(labels[:-1])
