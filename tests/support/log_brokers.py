"""Brokers for runs on which a process is killed, which may be the broker: each has clicks in a log of its kind."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from esd.run.valkey import valkey_server
from testbed.kafka_broker import PARTITIONS, MockKafka, mock_kafka
from testbed.nats_server import NatsServer, nats_server
from testbed.redis_server import RedisServer, redis_server
from tests.support.clicks import KEY, add_clicks

DRIVER, DISPATCHER, BROKER = "driver", "dispatcher", "broker"


class LogBroker(Protocol):
    """A broker with one log of clicks at a time.

    Attributes:
        victims: the processes that may be killed in a run on it.
    """

    victims: tuple[str, ...]

    @property
    def address(self) -> str:
        """The address of the log."""
        ...

    def empty(self) -> None:
        """Begins an empty log."""
        ...

    def add(self, rows: list[dict[str, object]], first: int) -> None:
        """Appends clicks, of which the first has this number; equal numbers make equal positions."""
        ...

    def place(self, position: str) -> str:
        """The part of a position that equal logs have alike: not the time at which a log was made."""
        ...

    def restart(self) -> None:
        """Kills the broker and starts it again."""
        ...


class ValkeyBroker:
    """A stream of a real Valkey."""

    victims: tuple[str, ...] = (DRIVER, DISPATCHER, BROKER)

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    @property
    def address(self) -> str:
        return f"redis+stream://{self._server.address}/{KEY}"

    def empty(self) -> None:
        self._server.empty()

    def add(self, rows: list[dict[str, object]], first: int) -> None:
        add_clicks(self._server.port, rows, first)

    def place(self, position: str) -> str:
        return position

    def restart(self) -> None:
        self._server.kill()
        self._server.start()


class KafkaBroker:
    """A topic of librdkafka's mock broker, whose partitions get the clicks in turn. It cannot be started again."""

    victims: tuple[str, ...] = (DRIVER, DISPATCHER)

    def __init__(self, broker: MockKafka) -> None:
        self._broker = broker
        self._topics = 0

    @property
    def address(self) -> str:
        return f"kafka://{self._broker.address}/{KEY}{self._topics}"

    def empty(self) -> None:
        self._topics += 1

    def add(self, rows: list[dict[str, object]], first: int) -> None:
        messages = ((at % PARTITIONS, json.dumps(row).encode()) for at, row in enumerate(rows, first))
        self._broker.add(f"{KEY}{self._topics}", messages)

    def place(self, position: str) -> str:
        return position

    def restart(self) -> None:
        raise NotImplementedError


class NatsBroker:
    """A stream of a real NATS server."""

    victims: tuple[str, ...] = (DRIVER, DISPATCHER, BROKER)

    def __init__(self, server: NatsServer) -> None:
        self._server = server

    @property
    def address(self) -> str:
        return f"nats://{self._server.address}/{KEY}"

    def empty(self) -> None:
        self._server.make_stream(KEY)

    def add(self, rows: list[dict[str, object]], first: int) -> None:
        self._server.add(KEY, (json.dumps(row).encode() for row in rows))

    def place(self, position: str) -> str:
        return position.partition("@")[0]

    def restart(self) -> None:
        self._server.kill()
        self._server.start()


@contextlib.contextmanager
def valkey_broker(directory: Path) -> Iterator[LogBroker]:
    with redis_server(directory, program=valkey_server()) as server:
        yield ValkeyBroker(server)


@contextlib.contextmanager
def kafka_broker(directory: Path) -> Iterator[LogBroker]:
    with mock_kafka() as broker:
        yield KafkaBroker(broker)


@contextlib.contextmanager
def nats_broker(directory: Path) -> Iterator[LogBroker]:
    with nats_server(directory) as server:
        yield NatsBroker(server)


BROKERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[LogBroker]]] = {
    "valkey": valkey_broker,
    "kafka": kafka_broker,
    "nats": nats_broker,
}
