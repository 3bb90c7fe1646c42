"""Which fields of a table Redis has already, read beside the server's work.

A server that has not begun a table itself knows none of its rows, so it asks Redis for every row and writes each by a
script (insertions.py). A survey reads the names of all rows and of all pre-images once, hash by hash, in a thread of
its own. Each hash is read by one command: a cursor would mean nothing to a Redis that was restarted meanwhile. After
each of them the survey rests for as long as it took, so that Redis and this process have half of their time for others.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from esd.ps_server.stores.redis import layout, records
from esd.ps_server.stores.redis.connection import Command, RedisConnection, ask, translated_errors
from esd.ps_server.stores.redis.insertions import Insertions
from esd.services.domain.errors import EsdError, FailedPrecondition, Unavailable
from esd.services.runtime.threads import name_this_thread

_log = logging.getLogger(__name__)

# Redis does nothing else while it lists a hash. A table whose hashes have more fields is beyond the room of the filter
# (native/rows/field_filter.h).
MAX_FIELDS = 350_000
_SCAN_KEYS = 1000  # keys that Redis examines per step
_AGAIN_SECONDS = 1.0  # from one attempt to the next while Redis is out of reach
T = TypeVar("T")

_PRE_IMAGES = re.compile(rb"p\d+:\{(.+)\.([0-9a-f]{2})\}:(\d)")


class Survey:
    """The survey of one table. It begins at once.

    Args:
        table: its name.
        places: the places of this shard's hashes of rows.
        redis: a single server, which has the table.
        insertions: learn its fields, and the end of the survey.
        max_fields: the most fields of a hash; a larger one ends the survey.
    """

    def __init__(
        self,
        table: str,
        places: Sequence[int],
        redis: RedisConnection,
        insertions: Insertions,
        max_fields: int = MAX_FIELDS,
    ) -> None:
        self._table = table
        self._places = places
        self._redis = redis
        self._insertions = insertions
        self._max_fields = max_fields
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ps-survey")
        self._thread.start()

    def wait(self) -> None:
        """Waits until it has ended."""
        self._thread.join()

    def close(self) -> None:
        """Ends it after the command that it waits for."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        name_this_thread("ps-survey")
        began, found = time.monotonic(), 0
        try:
            for key, place in self._hashes():
                ids = self._until_answered(partial(self._ids, key, place))
                self._insertions.learn(ids)
                found += len(ids)
        except _Ended:
            return
        except EsdError as error:
            _log.warning(
                "which rows of table %r Redis has remains unknown, so that new ones are asked for and written by a "
                "script: %s",
                self._table,
                error,
            )
            return
        self._insertions.know_all()
        _log.info("table %r: %d fields in Redis are known after %.1f s", self._table, found, time.monotonic() - began)

    def _hashes(self) -> Iterator[tuple[bytes, int]]:
        """Yields the hashes of rows and the hashes of pre-images, each with its place."""
        hashes = layout.quarter_keys("e", self._table)
        yield from ((hashes[place], place) for place in self._places)
        # Pre-images that come later are of rows that this server has changed, so that it knows them.
        yield from self._until_answered(self._pre_images)

    def _pre_images(self) -> list[tuple[bytes, int]]:
        mine, found, sockets = set(self._places), dict[bytes, int](), -1
        while sockets != self._redis.sockets_opened:  # a Redis that was restarted knows the cursor no more
            sockets = self._redis.sockets_opened
            for key in self._keys():
                match = _PRE_IMAGES.fullmatch(key)
                if match and match[1] == self._table.encode():
                    place = layout.QUARTERS * int(match[2], 16) + int(match[3])
                    if place in mine:
                        found[key] = place
        return list(found.items())

    def _keys(self) -> Iterator[bytes]:
        (server,) = self._redis.servers()
        cursor = b""
        while cursor != b"0":
            self._check_open()
            scan: Command = (b"SCAN", cursor or b"0", b"MATCH", b"p*:{*", b"COUNT", _SCAN_KEYS)
            with translated_errors(self._redis.address):
                cursor, keys = ask(server, scan)
            yield from keys

    def _ids(self, key: bytes, place: int) -> NDArray[np.uint64]:
        """Returns an id for each field of a hash, then rests. Raises FailedPrecondition if there are too many."""
        began = time.monotonic()
        (size,) = self._redis.execute([key], [(b"HLEN", key)])
        if size > self._max_fields:
            raise FailedPrecondition(f"{key!r} has {size} fields, and at most {self._max_fields} are read at a time")
        (names,) = self._redis.execute([key], [(b"HKEYS", key)])
        ids = records.ids_of(place, names) if key.startswith(b"p") else records.ids_of_fields(place, names)
        self._closing.wait(time.monotonic() - began)
        return ids

    def _until_answered(self, ask_redis: Callable[[], T]) -> T:
        """Asks until Redis is in reach. Raises _Ended if the survey is closed meanwhile."""
        while True:
            self._check_open()
            try:
                return ask_redis()
            except Unavailable:
                self._closing.wait(_AGAIN_SECONDS)

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise _Ended


class _Ended(Exception):
    """The survey was closed."""
