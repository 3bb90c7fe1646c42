"""Replicas find their number in the name that the engine's DNS gives their address."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from esd.cluster import replica
from esd.cluster.replica import interface_of, local_address, replica_link, replica_number
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable

ADDRESS = "172.18.0.2"


def labels(name: bytes) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in name.split(b".")) + b"\0"


def whole_owner(name: str) -> bytes:
    """The owner of the record as Docker's resolver writes it: spelt out again."""
    return labels(b"2.0.18.172.in-addr.arpa")


def pointer(name: str) -> bytes:
    """The owner as most servers write it: a pointer to the question."""
    return b"\xc0\x0c"


@contextmanager
def resolver(*container: bytes, owner=whole_owner) -> Iterator[tuple[str, int]]:
    """A DNS server that answers one question with the name of a container: labels before the network's name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer() -> None:
            question, client = server.recvfrom(512)
            assert question[12:] == labels(b"2.0.18.172.in-addr.arpa") + struct.pack(">2H", 12, 1)
            head = struct.pack(">6H", *struct.unpack_from(">H", question), 0x8180, 1, len(container[:1]), 0, 0)
            record = b""
            if container:
                name = b"".join(bytes([len(label)]) + label for label in (*container, b"esd_lan")) + b"\0"
                record = owner(ADDRESS) + struct.pack(">2HIH", 12, 1, 600, len(name)) + name
            server.sendto(head + question[12:] + record, client)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()
        thread.join()


@pytest.mark.parametrize(
    ("container", "number"),
    [
        ((b"esd_worker_3",), 3),
        ((b"esd-worker-12",), 12),
        ((b"esd-e2e-77_worker_1",), 1),
    ],
    ids=["compose 1", "compose 2", "number in the project"],
)
@pytest.mark.parametrize("owner", [whole_owner, pointer])
def test_the_number_is_part_of_the_containers_name(container, number, owner) -> None:
    with resolver(*container, owner=owner) as server:
        assert replica_number(ADDRESS, server) == number


def test_a_swarm_tells_the_number(monkeypatch) -> None:
    monkeypatch.setenv("ESD_REPLICA", "4")
    assert replica_number(ADDRESS) == 4
    monkeypatch.setenv("ESD_REPLICA", "four")
    with pytest.raises(FailedPrecondition, match="ESD_REPLICA_four"):
        replica_number(ADDRESS)


@pytest.mark.parametrize("container", [(), (b"worker",), (b"esd_worker_run_5f2a",), (b"esd_worker_0",)])
def test_a_container_without_a_number_is_told_what_to_set(container) -> None:
    with resolver(*container) as server, pytest.raises(FailedPrecondition, match="ESD_WORKER_NAME"):
        replica_number(ADDRESS, server)


def test_a_resolver_that_is_not_there_is_named() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = taken.getsockname()
    with pytest.raises(Unavailable, match="resolver"):
        replica_number(ADDRESS, nobody)


def test_each_replica_has_its_own_link(monkeypatch) -> None:
    monkeypatch.setattr(replica, "replica_number", lambda address: 2)
    assert replica_link("500m, 50m", ADDRESS) == 6.25e6
    monkeypatch.setattr(replica, "replica_number", lambda address: 3)
    with pytest.raises(InvalidArgument, match="this is replica 3"):
        replica_link("500m,50m", ADDRESS)


def test_one_link_is_for_all_and_needs_no_number() -> None:
    assert replica_link("80k", ADDRESS) == 1e4


def test_the_address_towards_a_peer_and_its_interface() -> None:
    assert local_address("127.0.0.1:50051") == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"
    assert local_address("[::1]:50051") == "::1"
    assert interface_of("::1") == "lo"
    with pytest.raises(FailedPrecondition, match="2001:db8::1"):
        interface_of("2001:db8::1")
    with pytest.raises(FailedPrecondition, match=r"192\.0\.2\.1"):
        interface_of("192.0.2.1")
    with pytest.raises(Unavailable, match=r"nowhere\.invalid"):
        local_address("nowhere.invalid:50051")
