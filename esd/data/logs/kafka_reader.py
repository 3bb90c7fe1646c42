"""Reads the messages of a topic's partitions in turns."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping

from esd.data.logs.kafka_consumer import BrokersAwayError, OffsetGoneError, Record, TopicConsumer
from esd.data.logs.log import Chunk, Message, patiently
from esd.data.logs.turns import Turns
from esd.services.domain.errors import FailedPrecondition

_WAIT_SECONDS = 1.0  # for the next message, before the brokers are asked whether they are there
_HELD_BYTES = 64 << 20  # of messages that wait for the turn of their partition, over all partitions
_TOLD_SECONDS = 60.0  # between warnings of a partition that holds the others up

_log = logging.getLogger(__name__)


class KafkaReader:
    """A `LogReader` over partitions of a topic.

    Messages come as the brokers send them, and wait here until it is their turn; a partition of which many wait is
    paused.

    Args:
        consumer: belongs to the reader.
        where: names the topic.
        turns: the place to begin at.
        ends: the offsets at which partitions end; empty: there is no end.
        sure: False if a position names the first message, which must then be there.
    """

    def __init__(
        self, consumer: TopicConsumer, where: str, turns: Turns, ends: Mapping[int, int], *, sure: bool
    ) -> None:
        self._consumer = consumer
        self._where = where
        self._turns = turns
        self._ends = dict(ends)
        self._expected = None if sure else turns.offsets[turns.partition]
        self._waiting: dict[int, deque[Record]] = {partition: deque() for partition in turns.offsets}
        self._bytes = dict.fromkeys(turns.offsets, 0)  # of those
        self._paused: set[int] = set()
        self._empty_from: dict[int, int] = {}  # the offset at which a partition had no more, when last heard of
        self._told = time.monotonic()
        consumer.begin(turns.offsets)

    def read(self, most: int) -> Chunk | None:
        """See LogReader."""
        while True:
            partition = self._turns.partition
            if self._is_ended(partition):
                if all(map(self._is_ended, self._waiting)):
                    return None
                self._turns.skip()
            elif self._waiting[partition]:
                return self._chunk(partition, most)
            else:
                self._receive(partition)

    def close(self) -> None:
        """See LogReader."""
        self._consumer.close()

    def _is_ended(self, partition: int) -> bool:
        """Tells whether a partition is read to its bound; behind the last message, transactions leave offsets."""
        end = self._ends.get(partition)
        if end is None:
            return False
        waiting = self._waiting[partition]
        begin = waiting[0].offset if waiting else self._empty_from.get(partition, 0)
        return max(begin, self._turns.offsets[partition]) >= end

    def _chunk(self, partition: int, most: int) -> Chunk:
        waiting, end = self._waiting[partition], self._ends.get(partition)
        taken: list[Record] = []
        while waiting and len(taken) < min(most, self._turns.left) and (end is None or waiting[0].offset < end):
            taken.append(waiting.popleft())
        if self._expected is not None and taken[0].offset != self._expected:
            raise FailedPrecondition(self._gone(partition, self._expected))
        self._expected = None
        self._bytes[partition] -= sum(len(record.value or b"") for record in taken)
        self._resume(partition)
        self._turns.reach(taken[0].offset)
        position = str(self._turns)
        self._turns.give(len(taken), taken[-1].offset + 1)
        self._told = time.monotonic()
        messages = [Message(f"{record.offset} of partition {partition}", record.value or b"") for record in taken]
        return Chunk(position, messages, self._lag())

    def _receive(self, partition: int) -> None:
        """Waits for messages of any partition, and a moment only, so that a lost broker is noticed."""
        try:
            records = self._consumer.receive(_WAIT_SECONDS)
        except OffsetGoneError as error:
            raise FailedPrecondition(self._gone(error.partition, error.offset)) from None
        for record in records:
            if record.value is None:
                self._empty_from[record.partition] = record.offset
            else:
                self._waiting[record.partition].append(record)
                self._bytes[record.partition] += len(record.value)
                self._pause(record.partition)
        if not records:
            patiently(lambda: self._consumer.range_of(partition), (BrokersAwayError,), self._where)
        self._tell(partition)

    def _pause(self, partition: int) -> None:
        if self._bytes[partition] > _HELD_BYTES // len(self._waiting) and partition not in self._paused:
            self._paused.add(partition)
            self._consumer.pause(partition)

    def _resume(self, partition: int) -> None:
        if partition in self._paused and self._bytes[partition] <= _HELD_BYTES // len(self._waiting) // 2:
            self._paused.remove(partition)
            self._consumer.resume(partition)

    def _tell(self, partition: int) -> None:
        """Warns, now and then, of a partition that holds the messages of others up."""
        held = sum(map(len, self._waiting.values()))
        if held and time.monotonic() - self._told > _TOLD_SECONDS:
            self._told = time.monotonic()
            _log.warning(
                "%s: it is the turn of partition %d, which has had no message for %g s, and at least %d of other "
                "partitions wait for it; ?partitions= names the partitions that are read",
                self._where,
                partition,
                _TOLD_SECONDS,
                held,
            )

    def _lag(self) -> int | None:
        """Returns the messages that wait, as the offsets tell them; None: a partition's end is not known yet."""
        lag = 0
        for partition, offset in self._turns.offsets.items():
            end = self._ends.get(partition, self._consumer.known_end(partition))
            if end is None:
                return None
            lag += max(0, end - offset)
        return lag

    def _gone(self, partition: int, offset: int) -> str:
        low, high = patiently(lambda: self._consumer.range_of(partition), (BrokersAwayError,), self._where)
        if offset > high:
            found = f"the partition ends at {high}, so the topic was made anew, or its brokers have lost messages"
        else:
            found = (
                f"the partition begins at {low} now, or has lost messages behind it, so messages that were not trained "
                "were deleted; keep more of the topic (retention.ms, retention.bytes, no compaction), or train on from "
                "another position: --continue-from and ?from=TIME"
            )
        return f"{self._where}: the position {offset} of partition {partition} is gone: {found}"
