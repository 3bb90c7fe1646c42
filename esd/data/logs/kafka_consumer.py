"""A connection to a topic of Kafka: messages from given offsets on, without a consumer group and without commits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from esd.data.log_address import LogAddress
from esd.data.logs.credentials import CA_FILE, PASSWORD_FILE, SourceCredentials
from esd.services.domain.errors import FailedPrecondition, InvalidArgument

_ANSWER_SECONDS = 10.0  # of a broker
_QUEUED_BYTES = 16 << 20  # of messages that librdkafka has received and `receive` has not returned
_RECEIVED_AT_ONCE = 1000
_UNKNOWN = -1001  # a watermark that no answer has told yet
_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_DEFAULT_SASL = "SCRAM-SHA-512"  # which does not tell the password
# Errors that pass, by librdkafka's names. The group of a consumer has no use here, but its coordinator is looked for.
_PASSING = frozenset(
    {
        "_ALL_BROKERS_DOWN",
        "_TRANSPORT",
        "_RESOLVE",
        "_TIMED_OUT",
        "REQUEST_TIMED_OUT",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "GROUP_AUTHORIZATION_FAILED",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "COORDINATOR_LOAD_IN_PROGRESS",
    }
)
_END = "_PARTITION_EOF"
_OUT_OF_RANGE = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"})
_REFUSED = frozenset({"_AUTHENTICATION", "_SSL"})
_NO_TOPIC = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
    }
)

_log = logging.getLogger(__name__)


class BrokersAwayError(Exception):
    """No broker answers."""


@dataclass(frozen=True, slots=True)
class Record:
    """A message of a partition, or the news that a partition has none at an offset.

    Attributes:
        partition, offset: its place.
        value: None: the partition has no message from `offset` on, as yet.
    """

    partition: int
    offset: int
    value: bytes | None


class OffsetGoneError(Exception):
    """A partition has no message at an offset that was asked for, and neither ends there.

    Attributes:
        partition, offset: the place.
    """

    def __init__(self, partition: int, offset: int) -> None:
        super().__init__(partition, offset)
        self.partition, self.offset = partition, offset


class TopicConsumer:
    """A consumer of one topic.

    Args:
        address: of the topic.
        credentials: for its brokers.

    Raises:
        InvalidArgument: librdkafka refuses an option, such as a file that is no certificate.
    """

    def __init__(self, address: LogAddress, credentials: SourceCredentials) -> None:
        self._where = str(address)
        self._topic = address.name
        self._refused = ""
        self._begun = False
        try:
            self._consumer = Consumer({**_options(address, credentials), "error_cb": self._note}, logger=_log)
        except KafkaException as error:
            raise InvalidArgument(f"{address}: {error.args[0].str()}") from None

    def partitions(self) -> list[int]:
        """Returns the partitions of the topic.

        Raises:
            InvalidArgument: there is no such topic, or no access.
            BrokersAwayError: no broker answers.
        """
        try:
            found = self._consumer.list_topics(self._topic, timeout=_ANSWER_SECONDS).topics[self._topic]
        except KafkaException as error:
            raise self._away(error) from error
        if found.error is not None:
            if found.error.name() in _PASSING:
                raise BrokersAwayError(found.error.str())
            raise InvalidArgument(f"{self._where}: this topic cannot be read: {found.error.str()}")
        return sorted(found.partitions)

    def range_of(self, partition: int) -> tuple[int, int]:
        """Asks for the offsets of the oldest message of a partition, and of the next one to come.

        Raises:
            InvalidArgument: the brokers refuse the user.
            BrokersAwayError: no broker answers.
        """
        try:
            low, high = self._consumer.get_watermark_offsets(self._part(partition), timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            raise self._away(error) from error
        return low, high

    def offsets_at(self, milliseconds: int, partitions: Iterable[int]) -> dict[int, int]:
        """Asks for the first message of each partition with this time or a later one; without one, for its end.

        Raises:
            InvalidArgument: the brokers refuse the user.
            BrokersAwayError: no broker answers.
        """
        asked = [self._part(partition, milliseconds) for partition in partitions]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            raise self._away(error) from error
        return {each.partition: each.offset if each.offset >= 0 else self.range_of(each.partition)[1] for each in found}

    def known_end(self, partition: int) -> int | None:
        """Returns the end of a partition as the latest answer told it; None: none has."""
        end = self._consumer.get_watermark_offsets(self._part(partition), cached=True)[1]
        return None if end == _UNKNOWN else end

    def begin(self, offsets: Mapping[int, int]) -> None:
        """Begins to receive partitions, each from an offset on."""
        self._begun = True
        self._consumer.assign([self._part(*each) for each in offsets.items()])

    def pause(self, partition: int) -> None:
        """Receives no more of a partition."""
        self._consumer.pause([self._part(partition)])

    def resume(self, partition: int) -> None:
        """Receives a paused partition again, from where it was left."""
        self._consumer.resume([self._part(partition)])

    def receive(self, seconds: float) -> list[Record]:
        """Waits for messages, and returns all that have come.

        Raises:
            OffsetGoneError: an offset is neither a message's nor the end.
            FailedPrecondition: the topic cannot be read any more.
        """
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        records = []
        for message in (first, *self._consumer.consume(_RECEIVED_AT_ONCE, 0)):
            error = message.error()
            if error is not None and error.name() in _PASSING:
                continue
            if error is not None and error.name() != _END and error.name() not in _OUT_OF_RANGE:
                raise FailedPrecondition(f"{self._where}: the topic cannot be read any more: {error.str()}")
            partition, offset = cast("int", message.partition()), cast("int", message.offset())
            if error is None:
                records.append(Record(partition, offset, message.value() or b""))
            elif error.name() == _END:
                records.append(Record(partition, offset, None))
            else:
                raise OffsetGoneError(partition, offset)
        return records

    def close(self) -> None:
        """Ends the connections."""
        self._consumer.close()

    def _part(self, partition: int, offset: int = 0) -> TopicPartition:
        return TopicPartition(self._topic, partition, offset)

    def _note(self, error: KafkaError) -> None:
        if error.name() in _REFUSED:
            self._refused = error.str()

    def _away(self, error: KafkaException) -> Exception:
        """Returns the error for a call without an answer."""
        if not self._begun:
            self._consumer.poll(0)  # has `_note` called, and would return a message later
        if self._refused:
            return InvalidArgument(
                f"{self._where}: brokers and this reader refuse each other (user, {PASSWORD_FILE}, {CA_FILE} or the "
                f"certificates): {self._refused}"
            )
        found: KafkaError = error.args[0]
        if found.name() in _NO_TOPIC:
            return InvalidArgument(f"{self._where}: this topic cannot be read: {found.str()}")
        return BrokersAwayError(found.str())


def _options(address: LogAddress, credentials: SourceCredentials) -> dict[str, str | int | float | bool]:
    """Returns librdkafka's options.

    Raises:
        InvalidArgument: the mechanism of the user is unknown, or a password is missing.
    """
    chosen: dict[str, str | int | float | bool] = {
        "bootstrap.servers": ",".join(address.servers),
        "client.id": "esd",
        "group.id": "esd",  # must be set, and is never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "fetch.max.bytes": _QUEUED_BYTES,
        "queued.max.messages.kbytes": _QUEUED_BYTES >> 10,
    }
    protocol = "SSL" if address.encrypted else "PLAINTEXT"
    if address.user:
        mechanism = address.sasl.upper() or _DEFAULT_SASL
        if mechanism not in _SASL:
            raise InvalidArgument(f"{address}: sasl={address.sasl} is unknown; there are {', '.join(_SASL).lower()}")
        if not credentials.password:
            raise InvalidArgument(f"{address}: user {address.user} needs a password, in the file of {PASSWORD_FILE}")
        protocol = f"SASL_{protocol}"
        chosen |= {
            "sasl.mechanism": mechanism,
            "sasl.username": address.user,
            "sasl.password": credentials.password,
        }
    elif address.sasl:
        raise InvalidArgument(f"{address}: sasl={address.sasl} needs a user: {address.scheme}://USER@HOST:PORT/TOPIC")
    files = {
        "ssl.ca.location": credentials.authorities,
        "ssl.certificate.location": credentials.certificate,
        "ssl.key.location": credentials.key,
    }
    return {**chosen, "security.protocol": protocol, **{name: file for name, file in files.items() if file}}
