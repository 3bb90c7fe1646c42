import numpy as np
import pytest

from esd.data.hashing import derived_ids, field_key, hash_bytes
from esd.native.text import Parser, hash_integers, hash_texts
from esd.services.domain.ids import mix64

VALUES = [b"", b"a", b"68fd1e64", b"68fd1e64a", "Zürich".encode(), b"x" * 31, bytes(8)]


def test_golden_values():
    """These values are stored in checkpoints: if one changes, READER_VERSION must rise."""
    assert field_key("C1") == 0x891082E43ED944BD
    assert [hash_bytes(field_key("C1"), value) for value in VALUES] == [
        0xB75F7F8259AFB074,
        0xD2A1E27D7CF47F00,
        0xD6F60E34CBDBEB60,
        0xD783D8507B43786C,
        0x9E212F0D7BAB1A21,
        0x1B5729AB3DA5109F,
        0x9C1143E1A95363FC,
    ]
    assert derived_ids("a x b", np.array([1, 2]), np.array([3, 4], np.uint64)).tolist() == [
        0x861E9AD4A5B7CB56,
        0x139CA2D22BEC33A5,
    ]


@pytest.mark.parametrize("value", VALUES)
def test_native_parser_makes_the_same_ids(value):
    parser = Parser([("id", False, field_key("C1"))], "\t", quoted=False, missing="", max_line_bytes=100)
    ids, *_ = parser.parse(value + b"\n", 0)
    assert ids.tolist() == [[hash_bytes(field_key("C1"), value)]]


def test_is_the_documented_fold():
    def mix(x):
        return int(mix64(np.array([x], np.uint64))[0])

    start = mix(5 ^ (10 * 0x9E3779B97F4A7C15 % 2**64))
    expected = mix(mix(start ^ int.from_bytes(b"01234567", "little")) ^ int.from_bytes(b"89", "little"))
    assert hash_bytes(5, b"0123456789") == expected


def test_a_derived_id_is_the_hash_of_its_parts_as_bytes():
    parts = np.array([7, 2**63], np.uint64), np.array([0, 12], np.uint64)
    expected = [hash_bytes(field_key("x"), a.tobytes() + b.tobytes()) for a, b in zip(*parts, strict=True)]
    assert derived_ids("x", *parts).tolist() == expected


def test_equal_values_of_different_fields_differ():
    assert hash_bytes(field_key("origin"), b"JFK") != hash_bytes(field_key("dest"), b"JFK")


def test_order_of_parts_matters():
    a, b = np.array([1], np.uint64), np.array([2], np.uint64)
    assert derived_ids("x", a, b) != derived_ids("x", b, a)


@pytest.mark.parametrize("offset", [np.int32, np.int64])
def test_native_columns_of_texts_have_the_same_ids(offset):
    offsets = np.cumsum([0, *map(len, VALUES)]).astype(offset)
    text = np.frombuffer(b"".join(VALUES), np.uint8)
    assert hash_texts(9, offsets, text).tolist() == [hash_bytes(9, value) for value in VALUES]
    assert hash_texts(9, offsets[2:4], text).tolist() == [hash_bytes(9, VALUES[2])]


@pytest.mark.parametrize("offsets", [[], [0, 4], [2, 1], [-1, 2]])
def test_native_offsets_outside_the_text_are_refused(offsets):
    with pytest.raises(ValueError, match="offsets"):
        hash_texts(9, np.array(offsets, np.int32), np.frombuffer(b"abc", np.uint8))


@pytest.mark.parametrize("numbers", [np.array([0, 5, -(2**63), 2**63 - 1]), np.array([0, 2**64 - 1], np.uint64)])
def test_native_integers_have_the_ids_of_their_digits(numbers):
    assert hash_integers(9, numbers).tolist() == [hash_bytes(9, str(number).encode()) for number in numbers]
