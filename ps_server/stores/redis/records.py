"""The records of a table's history in Redis: one per shard, all of them in one hash."""

from __future__ import annotations

from ps_server.core.record import Record, shared_out
from ps_server.core.shard import Shard
from ps_server.stores.redis import scripts
from ps_server.stores.redis.routes import Command, Route
from services.domain.errors import FailedPrecondition


class Records:
    """The record of one shard."""

    def __init__(self, table: str, shard: Shard, route: Route) -> None:
        self._table = table
        self._shard = shard
        self._route = route
        self._key = f"h:{table}".encode()

    def load(self) -> bytes | None:
        """What was saved last. After a change of the number of shards, what the shards before leave to this one.

        Raises:
            FailedPrecondition: a record is damaged.
        """
        fields = self._fields()
        before = int(fields.get(b"shards", 0))
        if before not in (0, self._shard.count):
            self._share_out(fields, before)
            fields = self._fields()
        return fields.get(b"%d" % self._shard.index)

    def save(self, data: bytes) -> None:
        """Replaces the record. Raises FailedPrecondition if another number of shards has taken over."""
        save: Command = (b"EVAL", scripts.SAVE_RECORD, 1, self._key, self._shard.count, self._shard.index, data)
        (saved,) = self._route.execute([self._key], [save])
        if not saved:
            raise FailedPrecondition(
                f"table {self._table!r} in Redis at {self._route.address} is served by another number of parameter "
                f"servers than {self._shard.count}; start all of them with one number of shards"
            )

    def _share_out(self, fields: dict[bytes, bytes], before: int) -> None:
        stored = [fields.get(b"%d" % index) for index in range(before)]
        place = f"Redis at {self._route.address}"
        records = [Record() if data is None else Record.decode(data, place) for data in stored]
        shared = [shared_out(records, index).encode() for index in range(self._shard.count)]
        change: Command = (b"EVAL", scripts.SHARE_OUT, 1, self._key, before, self._shard.count, *shared)
        self._route.execute([self._key], [change])

    def _fields(self) -> dict[bytes, bytes]:
        (pairs,) = self._route.execute([self._key], [(b"HGETALL", self._key)])
        return dict(zip(pairs[::2], pairs[1::2], strict=True))
