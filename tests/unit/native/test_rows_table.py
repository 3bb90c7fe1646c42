"""The native row table against a dict."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from esd.native import rows as native
from esd.native.rows import RowTable
from esd.services.domain.ids import mix64, shard_of


class ReferenceTable:
    """A dict of id -> (version, row)."""

    def __init__(self, width):
        self.width = width
        self.stored = {}

    def read(self, ids):
        found = [self.stored.get(int(row), (0, np.zeros(self.width, np.float32))) for row in ids]
        rows = np.array([values for _, values in found], np.float32).reshape(len(ids), self.width)
        return np.array([version for version, _ in found], np.int64), rows

    def write_newer(self, ids, versions, rows):
        newer = versions > self.read(ids)[0]
        for row, version, values in zip(ids[newer], versions[newer], rows[newer], strict=True):
            self.stored[int(row)] = (int(version), values.copy())
        return newer

    def overwrite(self, ids, versions, rows):
        for row, version, values in zip(ids.tolist(), versions.tolist(), rows, strict=True):
            self.stored.pop(row, None)
            if version:
                self.stored[row] = (version, values.copy())

    def forget_older(self, ids, below):
        older = [row for row in ids.tolist() if row in self.stored and self.stored[row][0] < below]
        for row in older:
            del self.stored[row]
        return len(older)


def scan_all(table, limit):
    cursor, ids, versions, rows = table.scan(0, limit)
    blocks = []
    while len(ids):
        assert len(ids) <= limit
        blocks.append((ids, versions, rows))
        cursor, ids, versions, rows = table.scan(cursor, limit)
    return [np.concatenate(column) for column in zip(*blocks, strict=True)] if blocks else [ids, versions, rows]


@pytest.mark.parametrize("width", [1, 2, 17, 5000])
def test_equals_the_reference_under_random_writes_and_reads(width):
    rng = np.random.default_rng(width)
    table, reference = RowTable(width), ReferenceTable(width)
    universe = rng.integers(0, 2**64, 300, dtype=np.uint64)
    for _ in range(60):
        ids = rng.choice(universe, rng.integers(0, 40), replace=False)
        versions = rng.integers(1, 9, len(ids))
        rows = rng.standard_normal((len(ids), width)).astype(np.float32)
        np.testing.assert_array_equal(
            table.write_newer(ids, versions, rows), reference.write_newer(ids, versions, rows)
        )
        asked = rng.choice(universe, 25)
        for got, expected in zip(table.read(asked), reference.read(asked), strict=True):
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(table.versions(asked), reference.read(asked)[0])
    assert len(table) == len(reference.stored)
    ids, versions, rows = scan_all(table, 7)
    assert set(ids.tolist()) == set(reference.stored)
    for got, expected in zip((versions, rows), reference.read(ids), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_equals_the_reference_when_rows_are_taken_out():
    rng = np.random.default_rng(1)
    table, reference = RowTable(3), ReferenceTable(3)
    universe = rng.integers(0, 2**64, 20_000, dtype=np.uint64)
    for _ in range(100):
        ids = rng.choice(universe, 500, replace=False)
        versions = rng.integers(0, 4, len(ids)) * 2**30 + rng.integers(1, 9, len(ids))
        rows = rng.standard_normal((len(ids), 3)).astype(np.float32)
        np.testing.assert_array_equal(
            table.write_newer(ids, versions, rows), reference.write_newer(ids, versions, rows)
        )
        ids, below = rng.choice(universe, 400, replace=False), int(rng.integers(1, 4)) * 2**30
        assert table.forget_older(ids, below) == reference.forget_older(ids, below)
        ids = rng.choice(universe, 100, replace=False)
        versions, rows = rng.integers(0, 2, len(ids)), rng.standard_normal((len(ids), 3)).astype(np.float32)
        table.overwrite(ids, versions, rows)
        reference.overwrite(ids, versions, rows)
        assert len(table) == len(reference.stored)
    for got, expected in zip(table.read(universe), reference.read(universe), strict=True):
        np.testing.assert_array_equal(got, expected)
    ids, versions, _ = scan_all(table, 1000)
    assert sorted(ids.tolist()) == sorted(reference.stored)
    assert table.trainings == sum(version % 2**30 for version, _ in reference.stored.values())
    assert table.trainings == (versions % 2**30).sum()


def test_the_space_of_rows_that_were_taken_out_is_used_again():
    table, ids = RowTable(64), np.arange(2_000, dtype=np.uint64)
    for life in range(20):
        new = ids + np.uint64(life * 2_000)
        table.write_newer(new, np.ones(len(ids), np.int64), np.ones((len(ids), 64), np.float32))
        if life == 0:
            once = table.memory_bytes
        assert table.forget_older(new, 2) == len(ids)
    assert len(table) == 0
    assert table.memory_bytes < 1.5 * once


def test_a_shards_ids_spread_over_the_index():
    ids = np.arange(400_000, dtype=np.uint64)
    ids = ids[shard_of(ids, 64) == 3]
    table = RowTable(1)
    table.write_newer(ids, np.ones(len(ids), np.int64), np.ones((len(ids), 1), np.float32))
    assert len(table) == len(ids)
    assert (table.versions(ids) == 1).all()


def test_memory_grows_with_the_rows_and_by_little_more():
    table = RowTable(512)
    ids = np.arange(20_000, dtype=np.uint64)
    table.write_newer(ids, np.ones(len(ids), np.int64), np.zeros((len(ids), 512), np.float32))
    payload = len(ids) * (512 * 4 + 16)
    assert payload <= table.memory_bytes <= payload * 1.5


def test_concurrent_writers_and_readers_see_whole_rows():
    table = RowTable(64)
    ids = np.arange(500, dtype=np.uint64)

    def write(version):
        table.write_newer(ids, np.full(500, version), np.full((500, 64), version, np.float32))

    def read(_):
        versions, rows = table.read(ids)
        return bool((rows == versions[:, None]).all())

    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(write, version) for version in np.random.default_rng(0).permutation(np.arange(1, 200))]
        assert all(pool.map(read, range(200)))
        for done in writes:
            done.result()
    assert (table.versions(ids) == 199).all()


def test_wrong_shapes_raise_value_error():
    table, ids = RowTable(4), np.arange(3, dtype=np.uint64)
    with pytest.raises(ValueError, match="width"):
        table.write_newer(ids, np.ones(3, np.int64), np.zeros((3, 5), np.float32))
    with pytest.raises(ValueError, match="length"):
        table.write_newer(ids, np.ones(2, np.int64), np.zeros((3, 4), np.float32))


def test_a_checksum_tells_every_change_of_a_row():
    """The native function against its description, and against changed bits."""
    rng = np.random.default_rng(3)
    mask, factor = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(value):
        return int(mix64(np.array([value], np.uint64))[0])

    for width in (1, 2, 7):
        ids, versions = np.array([5, 2**63], np.uint64), np.array([1, 77])
        rows = rng.standard_normal((2, width)).astype(np.float32)
        sums = native.checksums(ids, versions, rows)
        for i in range(2):
            h, data = mix(int(ids[i]) ^ mix(int(versions[i]))), rows[i].tobytes()
            for at in range(0, len(data) - 7, 8):
                h = ((h ^ int.from_bytes(data[at : at + 8], "little")) * factor) & mask
                h ^= h >> 32
            if len(data) % 8:
                h = ((h ^ int.from_bytes(data[-4:], "little")) * factor) & mask
            assert sums[i] == mix(h) & 0xFFFFFFFF
        changed = rows.copy()
        changed.view(np.uint32)[0, -1] ^= 1
        assert native.checksums(ids, versions, changed)[0] != sums[0]
        assert (native.checksums(ids[::-1].copy(), versions, rows) != sums).all()
        assert (native.checksums(ids, versions + 1, rows) != sums).all()
