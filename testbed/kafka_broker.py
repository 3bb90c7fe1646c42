"""A broker of Kafka for tests: librdkafka's mock broker, in this process.

It speaks Kafka's protocol, keeps its messages in memory, at most 5 MB of each partition, and makes a topic of four
partitions when the first message for it comes. Messages that are added together, and are below 1 MB, reach a reader
together. It knows no times, no users, no TLS, and cannot be started again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from confluent_kafka import Producer

PARTITIONS = 4  # of each topic
_SECONDS = 30.0
_LINGER_MILLISECONDS = 10_000  # for which messages wait for more of their partition; `flush` ends the wait


class MockKafka:
    """The broker.

    Attributes:
        address: its host and port.
    """

    def __init__(self) -> None:
        options = {
            "bootstrap.servers": "",
            "test.mock.num.brokers": 1,
            "log_level": 3,
            "linger.ms": _LINGER_MILLISECONDS,
        }
        self._producer = Producer(options)
        brokers = self._producer.list_topics(timeout=_SECONDS).brokers.values()
        self.address = ",".join(f"{each.host}:{each.port}" for each in brokers)

    def add(self, topic: str, messages: Iterable[tuple[int, bytes]]) -> None:
        """Appends messages to the partitions with which they come; returns when all are there."""
        for partition, value in messages:
            self._producer.produce(topic, value, partition=partition)
        left = self._producer.flush(_SECONDS)
        assert not left, f"{left} messages were not taken"

    def close(self) -> None:
        """Ends the broker with its last client."""
        self._producer.close()


@contextlib.contextmanager
def mock_kafka() -> Iterator[MockKafka]:
    """A running broker, which ends with the block."""
    broker = MockKafka()
    try:
        yield broker
    finally:
        broker.close()
