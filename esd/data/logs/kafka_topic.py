"""A topic of Kafka as a log, in the order of `Turns`. Positions have the offset of each partition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from esd.data.log_address import LogAddress
from esd.data.logs.bounds import Number, Time, parse_bound
from esd.data.logs.credentials import SourceCredentials
from esd.data.logs.kafka_consumer import BrokersAwayError, TopicConsumer
from esd.data.logs.kafka_reader import KafkaReader
from esd.data.logs.log import patiently
from esd.data.logs.turns import Turns
from esd.services.domain.errors import FailedPrecondition, InvalidArgument


class KafkaTopic:
    """A `Log` over a topic, or some of its partitions.

    Raises:
        InvalidArgument: a bound is neither an offset nor a time, or a file of the credentials cannot be read.
    """

    def __init__(self, address: LogAddress) -> None:
        self._address = address
        self._first = parse_bound(address.first, "from", "an offset")
        self._until = parse_bound(address.until, "until", "an offset")
        self._credentials = SourceCredentials.load(encrypted=address.encrypted)
        self._ends: dict[int, int] = {}  # found once, so that all readings end at the same messages

    def __str__(self) -> str:
        return str(self._address)

    def check(self) -> None:
        """See Log."""
        with closing(self._consumer()) as consumer:
            self._ends = patiently(lambda: self._find_ends(consumer), (BrokersAwayError,), str(self))

    def reader(self, position: str | None) -> KafkaReader:
        """See Log. Partitions that a position does not know, since they were added later, begin at their beginning."""
        place = None if position is None else Turns.parse(position)
        consumer = self._consumer()
        try:
            turns = patiently(lambda: self._find_begin(consumer, place), (BrokersAwayError,), str(self))
        except BaseException:
            consumer.close()
            raise
        return KafkaReader(consumer, str(self), turns, self._ends, sure=place is None)

    def _consumer(self) -> TopicConsumer:
        return TopicConsumer(self._address, self._credentials)

    def _partitions(self, consumer: TopicConsumer) -> Sequence[int]:
        found, named = consumer.partitions(), self._address.partitions
        if missing := [each for each in named if each not in found]:
            raise InvalidArgument(f"{self}: partitions={missing[0]} is none of the topic's: {len(found)}, from 0 on")
        return named or found

    def _find_ends(self, consumer: TopicConsumer) -> dict[int, int]:
        partitions = self._partitions(consumer)
        match self._until:
            case None:
                return {}
            case Number(number):
                partition = self._only(partitions, f"until={number}")
                if number > (end := consumer.range_of(partition)[1]):
                    raise InvalidArgument(f"{self}: until={number} lies ahead of the partition's end, {end}")
                return {partition: number}
            case Time(milliseconds):
                if milliseconds > time.time() * 1000:
                    raise InvalidArgument(
                        f"{self}: until {self._address.until} lies ahead of this machine's clock, so messages before "
                        "it may still come"
                    )
                return consumer.offsets_at(milliseconds, partitions)

    def _find_begin(self, consumer: TopicConsumer, place: Turns | None) -> Turns:
        partitions = self._partitions(consumer)
        if place is not None:
            if lost := place.offsets.keys() - set(partitions):
                raise FailedPrecondition(
                    f"{self}: the position {place} is gone: the topic has no partition {min(lost)} any more, so it was "
                    "made anew"
                )
            for added in set(partitions) - place.offsets.keys():
                place.add(added, consumer.range_of(added)[0])
            return place
        match self._first:
            case None:
                return Turns({each: consumer.range_of(each)[0] for each in partitions})
            case Number(number):
                return Turns({self._only(partitions, f"from={number}"): number})
            case Time(milliseconds):
                return Turns(consumer.offsets_at(milliseconds, partitions))

    def _only(self, partitions: Sequence[int], bound: str) -> int:
        if len(partitions) != 1:
            raise InvalidArgument(
                f"{self}: {bound} is an offset of one partition, and {len(partitions)} are read: give a time, or name "
                "the partition: partitions=0"
            )
        return partitions[0]
