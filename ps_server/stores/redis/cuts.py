"""The rows of a table in Redis at its cuts.

Pre-images are in hashes, one generation per cut. A script that changes a row writes its pre-image in the same step.
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from esd.native import rows as native
from esd.ps_server.stores.redis import layout, records, row_scripts
from esd.ps_server.stores.redis.claim import Claim
from esd.ps_server.stores.redis.connection import RedisConnection
from esd.ps_server.stores.redis.rows import RedisRows
from esd.ps_server.stores.redis.scripts import REMOVE
from esd.ps_server.stores.row_streams import first_of_each
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec


class RedisCuts:
    """A CutStore over the pre-images that RedisRows writes."""

    def __init__(self, spec: TableSpec, redis: RedisConnection, claim: Claim, rows: RedisRows) -> None:
        self._table = spec.name
        self._width = spec.row_width
        self._row_bytes = spec.row_bytes
        self._redis = redis
        self._claim = claim
        self._rows = rows

    def resume(self, cuts: Sequence[int], saved: int) -> bool:  # noqa: ARG002
        return False  # Redis holds all rows

    def keep_pre_images(self, cut: int | None) -> None:
        self._rows.pre_image_prefix = b"" if cut is None else b"p%d:" % cut

    def save(self, cut: int, earlier: int, base: int) -> tuple[int, int]:  # noqa: ARG002
        changed = self._count(earlier) if earlier else len(self._rows)
        return changed, changed * self._row_bytes

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:
        pre_images = (self._pre_images(generation) for generation in (cut, *later))
        return first_of_each(chain(chain.from_iterable(pre_images), self._rows.scan()))

    def as_of(self, block: RowBlock, cut: int, later: Sequence[int]) -> RowBlock:
        places, names = native.addresses(block.ids)
        groups = layout.by_place(places, self._rows.rows_per_command)
        ids, places = groups.arrange(block.ids), groups.arrange(places)
        fields = layout.split_rows(groups.arrange(names))
        for generation in reversed((cut, *later)):
            hashes = layout.quarter_keys(f"p{generation}", self._table)
            keys = [hashes[places[part.start]] for part in groups.parts]
            commands = [(b"HMGET", key, *fields[part]) for key, part in zip(keys, groups.parts, strict=True)]
            values = [value for reply in self._redis.execute(keys, commands) for value in reply]
            changed = groups.restore(np.array([value is not None for value in values], np.bool_))
            earlier = records.decoded(ids, values, self._width)
            block.versions[changed] = groups.restore(earlier.versions)[changed]
            block.rows[changed] = groups.restore(earlier.rows)[changed]
        return block

    def put_back(self, cuts: Sequence[int]) -> int:
        self._rows.settle()
        count = 0
        for cut in reversed(cuts):
            for place, name in self._hashes(cut):
                key = self._rows.hashes[place]
                for names, values in self._rows.scan_hash(name):
                    self._rows.learn(records.ids_of(place, names))
                    self._put_back(key, names, values)
                    count += len(names)
            self.drop(cut)
        return count

    def drop(self, cut: int) -> None:
        hashes = layout.quarter_keys(f"p{cut}", self._table)
        parts = [[hashes[place] for place in part] for part in layout.quarters(self._rows.places)]
        self._redis.execute([part[0] for part in parts], [self._claim.script(REMOVE, part) for part in parts])

    def _put_back(self, key: bytes, names: list[bytes], values: list[bytes]) -> None:
        """Puts some rows of one hash back."""
        packed = layout.join_rows(names, records.NAME_BYTES)
        groups = layout.by_field(np.zeros(len(names), np.int64), packed, self._rows.rows_per_command)
        short = records.short_record_bytes(self._width)
        commands = []
        for part in groups.parts:
            mine = groups.order[part]
            images = [values[i] for i in mine.tolist()]
            counts = len(mine).to_bytes(2, "little")
            commands.append(
                self._claim.script(row_scripts.PUT_BACK, [key], short, counts, packed[mine].tobytes(), *images)
            )
        self._redis.execute([key] * len(commands), commands)

    def _count(self, cut: int) -> int:
        names = [name for _, name in self._hashes(cut)]
        return sum(self._redis.execute(names, [(b"HLEN", name) for name in names]))

    def _pre_images(self, cut: int) -> Iterator[RowBlock]:
        """Yields a cut's generation; version 0 where no row existed. Raises FailedPrecondition if one is damaged."""
        for place, name in self._hashes(cut):
            for names, values in self._rows.scan_hash(name):
                yield records.decoded(records.ids_of(place, names), list(values), self._width)

    def _hashes(self, cut: int) -> list[tuple[int, bytes]]:
        """Returns the hashes of a generation with their places, for this shard."""
        hashes = layout.quarter_keys(f"p{cut}", self._table)
        return [(place, hashes[place]) for place in self._rows.places]
