"""The tables of one shard with checkpoints in an object store: rows are in memory, as with a checkpoint directory.

<url>/<table>/table.pb                                  its specification
<url>/<table>/samples/<position>-<k>.<term>-<number>    the sample log, one object per entry
<url>/<table>/shard-<i>-of-<n>/                         the objects of the server of shard i of n
    manifest.json                       epoch, cuts, committed checkpoints, and the objects that they consist of
    rows-<cut>.<term>-<number>          as in a checkpoint directory, see row_files.py
    part-<cut>-<name>.<term>-<number>, dense.<term>-<number>
<url>/shard-<i>-of-<n>.claim                            the claim of this server
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import re

from google.protobuf.message import DecodeError

from esd.protos import common_pb2
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import TableStore
from esd.ps_server.stores.directory.blobs import FileBlobs
from esd.ps_server.stores.directory.cuts import FileCuts
from esd.ps_server.stores.directory.sample_log import FileLog
from esd.ps_server.stores.memory import MemoryFrames, MemoryPartials, MemoryRows, MemoryStore
from esd.ps_server.stores.objects.bucket import Bucket, Changed
from esd.ps_server.stores.objects.claim import Claim
from esd.ps_server.stores.objects.folder import LogFolder, ObjectFolder
from esd.ps_server.stores.objects.manifest import ObjectHistory
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.tables import TableSpec
from esd.services.wire.tables import decode_table, encode_table

_SPEC = "table.pb"
_SHARD = re.compile(r".*/shard-[0-9]+-of-([0-9]+)")


class ObjectBlobs(FileBlobs):
    """A BlobStore of objects. Parts count with their checkpoint, so that only dense parameters need a manifest."""

    def __init__(self, folder: ObjectFolder, history: ObjectHistory) -> None:
        super().__init__(folder)
        self._history = history

    def put_dense(self, data: bytes) -> None:
        super().put_dense(data)
        self._history.save_files()


class _OwnHistory(ObjectHistory):
    """The history of a table that servers of another number must not have."""

    def __init__(self, store: ObjectStore, table: str, claim: Claim, folder: ObjectFolder) -> None:
        super().__init__(store.bucket, store.prefix(table), claim, folder)
        self._store = store
        self._table = table

    def load(self) -> bytes | None:
        self._store.check_shards(self._table)
        return super().load()


class ObjectStore(MemoryStore):
    """A Store in memory whose checkpoints are in an object store.

    Attributes:
        bucket: of the objects.
    """

    def __init__(self, url: str, shard: Shard) -> None:
        """Opens the tables of the bucket. Raises as `Bucket`."""
        super().__init__()
        self.bucket = Bucket(url)
        self._shard = shard
        self._claim = Claim(self.bucket, shard)
        self.loaded_bytes = 0
        for folder in sorted(self.bucket.within()[0]):
            spec = self._stored_spec(folder)
            if spec is not None:
                self._tables[spec.name] = (spec, self._open(spec))

    def prefix(self, table: str) -> str:
        """Returns the path of this shard's objects of a table."""
        return f"{table}/shard-{self._shard.index}-of-{self._shard.count}"

    def shards(self, table: str) -> int:
        folders = self.bucket.within(table)[0]
        return max((int(found[1]) for each in folders if (found := _SHARD.fullmatch(each))), default=0)

    def check_shards(self, table: str) -> None:
        """Raises FailedPrecondition if another number of servers has written the checkpoints of a table."""
        if self.shards(table) not in (0, self._shard.count):
            raise FailedPrecondition(
                f"the checkpoints of table {table!r} in {self.bucket.url} are of {self.shards(table)} parameter "
                f"servers, and here are {self._shard.count}: in an object store their number (--shards, "
                "ESD_PS_SHARDS) stays"
            )

    def claim(self, *, exclusive: bool) -> None:
        self._claim.take(exclusive=exclusive)

    def ping(self) -> None:
        self._claim.renew()

    def release(self) -> None:
        self._claim.release()

    def close(self) -> None:
        super().close()
        self.release()

    def _make(self, spec: TableSpec) -> TableStore:
        try:
            self.bucket.put(f"{spec.name}/{_SPEC}", encode_table(spec).SerializeToString(), None)
        except Changed:  # by the server of another shard
            if self._stored_spec(spec.name) != spec:
                raise FailedPrecondition(
                    f"{self.bucket.place(spec.name)} has been made with another specification meanwhile; use another "
                    "table (--table) or prefix"
                ) from None
        return self._open(spec)

    def _open(self, spec: TableSpec) -> TableStore:
        rows, partials = MemoryRows(spec), MemoryPartials(spec.dimension)
        folder = ObjectFolder(self.bucket, self.prefix(spec.name), self._claim)
        history = _OwnHistory(self, spec.name, self._claim, folder)
        return TableStore(
            rows=rows,
            partials=partials,
            cuts=FileCuts(rows, folder, self._count_loaded, lambda: None),
            history=history,
            blobs=ObjectBlobs(folder, history),
            log=FileLog(LogFolder(self.bucket, f"{spec.name}/samples", self._claim)),
            frames=lambda shard: MemoryFrames(spec, shard, rows, partials),
        )

    def _stored_spec(self, table: str) -> TableSpec | None:
        """Reads the specification of a table; None if there is none. Raises FailedPrecondition if it is damaged."""
        found = self.bucket.get(f"{table}/{_SPEC}")
        try:
            return None if found is None else decode_table(common_pb2.TableSpec.FromString(found[0]))
        except (DecodeError, InvalidArgument) as error:
            raise FailedPrecondition(
                f"{self.bucket.place(table)}/{_SPEC} is damaged: it holds no specification of a table ({error}). Give "
                "the bucket its data back, or begin anew with another prefix"
            ) from error

    def _count_loaded(self, size: int) -> None:
        self.loaded_bytes += size
        self._claim.renew()  # a server that loads is not pinged yet
