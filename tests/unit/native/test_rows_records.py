"""Records of the Redis store against their description in ps_server/stores/redis/records.py."""

import struct
from itertools import pairwise

import numpy as np
import pytest

from esd.native import rows as native
from esd.services.domain.ids import mix64, partition_of

IDS = np.random.default_rng(0).integers(0, 2**64, 200, dtype=np.uint64)
VERSIONS = np.array([1, 2**23 - 1, 2**23, 2**30 + 7, 2**53 - 1] * 40)


def rows_of(width):
    return np.random.default_rng(1).standard_normal((len(IDS), width)).astype(np.float32)


def reference_record(row_id, version, row):
    """One record, from the description."""
    last = int(mix64(np.array([row_id], np.uint64))[0]) >> 56
    more = version >> 23
    head = struct.pack("<I", last | (version & 0x7FFFFF) << 8 | (1 << 31 if more else 0))
    (checksum,) = native.checksums(np.array([row_id], np.uint64), np.array([version]), row[None])
    return head + (struct.pack("<I", more) if more else b"") + row.tobytes() + struct.pack("<I", checksum)


def neighbours(row_id, count):
    """Ids that share their field with a row."""
    (place,), (name,) = native.addresses(np.array([row_id], np.uint64))
    return native.ids_at(int(place), [name[:6].tobytes() + bytes([last]) for last in range(count)])


@pytest.mark.parametrize("width", [1, 2, 17, 1024])
def test_records_are_as_described(width: int) -> None:
    rows = rows_of(width)
    packed, starts = native.encode_records(IDS, VERSIONS, rows)
    records = [packed[start:end].tobytes() for start, end in pairwise(starts)]
    assert records == [reference_record(*each) for each in zip(IDS, VERSIONS.tolist(), rows, strict=True)]
    versions, decoded, damaged = native.decode_records(IDS, records, width)
    np.testing.assert_array_equal(versions, VERSIONS)
    np.testing.assert_array_equal(decoded, rows)
    assert len(damaged) == 0


def test_addresses_are_as_described() -> None:
    places, names = native.addresses(IDS)
    mixed = mix64(IDS)
    np.testing.assert_array_equal(places, partition_of(IDS) * 4 + (mixed >> np.uint64(6) & np.uint64(3)).astype(int))
    assert names.tobytes() == b"".join(int(each).to_bytes(8, "little")[1:] for each in mixed)
    for place, name, row_id in zip(places.tolist(), names, IDS, strict=True):
        assert native.ids_at(place, [name.tobytes()])[0] == row_id


def test_absent_rows_are_zeros() -> None:
    versions, rows, damaged = native.decode_records(IDS[:3], [None, b"", None], 4)
    assert (versions.tolist(), rows.tolist(), damaged.tolist()) == ([0] * 3, [[0.0] * 4] * 3, [])


def test_rows_that_share_a_field_are_told_apart() -> None:
    ids = neighbours(IDS[0], 4)
    versions, rows = VERSIONS[:4], rows_of(5)[:4]
    records = [reference_record(*each) for each in zip(ids, versions.tolist(), rows, strict=True)]
    value = b"".join(records[:3])
    found, values, damaged = native.decode_records(ids, [value] * 4, 5)
    assert found.tolist() == [*versions[:3], 0]
    np.testing.assert_array_equal(values[:3], rows[:3])
    assert len(damaged) == 0
    (place, *_), names = native.addresses(ids)
    assert np.unique(names[:, :6], axis=0).shape == (1, 6)
    split = native.split_records(int(place), [names[0, :6].tobytes()], [value], 5)
    assert [column.tolist() for column in split] == [
        ids[:3].tolist(), versions[:3].tolist(), rows[:3].tolist(), [],
    ]  # fmt: skip


@pytest.mark.parametrize("version", [3, 2**40])
def test_every_changed_byte_and_every_lost_one_is_seen(version: int) -> None:
    row = rows_of(3)[0]
    record = reference_record(IDS[0], version, row)
    changed = [record[:i] + bytes([record[i] ^ 1]) + record[i + 1 :] for i in range(len(record))]
    changed += [record[:i] for i in range(1, len(record))] + [record + b"x"]
    versions, rows, damaged = native.decode_records(np.repeat(IDS[:1], len(changed) - 1), changed[:-1], 3)
    assert damaged.tolist() == [IDS[0]] * (len(changed) - 1)
    assert not versions.any()
    assert not rows.any()
    (place,), (name,) = native.addresses(IDS[:1])
    for value in changed:
        *_, damaged = native.split_records(int(place), [name[:6].tobytes()], [value], 3)
        assert len(damaged) >= 1


def test_the_filter_of_fields_finds_all_that_were_added_and_few_others() -> None:
    rng = np.random.default_rng(2)
    rows = native.FieldFilter()
    added = rng.integers(0, 2**63, 400_000, dtype=np.uint64)  # of several layers
    assert not rows.has(added).any()
    assert rows.add(added).mean() > 0.99
    assert rows.has(added).all()
    assert not rows.add(added).any()
    others = added | np.uint64(1 << 63)
    assert rows.has(others).mean() < 0.01
    assert 2 * len(added) <= rows.memory_bytes <= 8 * len(added)


def test_rows_that_share_a_field_are_one_to_the_filter() -> None:
    rows = native.FieldFilter()
    first, *others = neighbours(7, 4)
    assert rows.add(np.array([first, others[0]])).tolist() == [True, False]
    assert rows.has(np.array(others)).all()


def test_commands_are_in_the_protocol_of_redis() -> None:
    fields = np.frombuffer(b"aabbcc", np.uint8).reshape(3, 2)
    values = np.frombuffer(b"one\r\n" + b"x" * 1000, np.uint8)
    starts, counts = np.array([0, 5, 5, 1005]), np.array([1, 2], np.uint16)
    packed = native.hset_commands([b"k", b"key:2"], counts, fields, values, starts)
    commands = [[b"HSET", b"k", b"aa", b"one\r\n"], [b"HSET", b"key:2", b"bb", b"", b"cc", b"x" * 1000]]
    assert packed == b"".join(
        b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in command)
        for command in commands
    )
