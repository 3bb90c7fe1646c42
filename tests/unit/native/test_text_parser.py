"""The native text parser against a plain Python parser, which is its specification."""

import math
import re
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esd.data.hashing import hash_bytes
from esd.native.text import DistinctIds, Parser, whole_records

INTEGER = re.compile(rb"-?[0-9]+")
DECIMAL = re.compile(rb"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
SHOWN = 40


class Mistake(Exception):
    """The column (1.., 0 for the line), the expected text, and the text found (None at the end of the line)."""


def split_line(line, delimiter, quoted, columns):
    """Yields (column number, field); raises Mistake at a broken quote or a column too many."""
    number, rest = 0, line
    while rest is not None:
        number += 1
        if number > columns:
            raise Mistake(number, f"the line to end after {columns} columns", rest)
        if quoted and rest.startswith(b'"'):
            closed = re.match(rb'"((?:[^"]|"")*)"(?!")', rest)
            if closed is None:
                raise Mistake(number, "a closing quote on the same line", rest)
            field, after = closed[1].replace(b'""', b'"'), rest[closed.end() :]
            if after and not after.startswith(delimiter):
                raise Mistake(number, "the end of the field after its closing quote", rest)
            rest = after[len(delimiter) :] if after else None
        else:
            field, found, after = rest.partition(delimiter)
            rest = after if found else None
        yield number, field


def is_within_range(text):
    """Neither too large for float32 nor too small for float64."""
    try:
        struct.pack("<f", float(text))
    except OverflowError:
        return False
    mantissa = re.split(b"[eE]", text)[0]
    return float(text) != 0 or not re.search(b"[1-9]", mantissa)


def read_number(kind, optional, missing, text):
    if optional and text in (b"", missing):
        return math.nan
    if kind == "integer":
        if INTEGER.fullmatch(text) and abs(int(text)) <= 2**53:
            return float(int(text))
        raise ValueError("an integer within +-2^53")
    if kind == "decimal":
        if DECIMAL.fullmatch(text) and is_within_range(text):
            return float(text)
        raise ValueError("a finite number")
    if text in (b"0", b"1"):
        return float(text)
    raise ValueError("0 or 1")


def parse_line(line, columns, delimiter, quoted, missing, max_line_bytes):
    if len(line) > max_line_bytes:
        raise Mistake(0, f"a line of at most {max_line_bytes} bytes", line)
    ids, numbers, seen = [], [], 0
    for number, field in split_line(line, delimiter, quoted, len(columns)):
        seen = number
        kind, optional, key = columns[number - 1]
        if kind == "id":
            ids.append(hash_bytes(key, field))
        elif kind != "skip":
            try:
                numbers.append(read_number(kind, optional, missing, field))
            except ValueError as error:
                raise Mistake(number, str(error), field) from None
    if seen < len(columns):
        raise Mistake(seen + 1, f"{len(columns)} columns", None)
    return ids, numbers


def reference(text, columns, delimiter, quoted, missing, max_line_bytes):
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    ids, numbers, mistakes = [], [], []
    for position, line in enumerate(lines):
        try:
            row_ids, row_numbers = parse_line(
                line.removesuffix(b"\r"), columns, delimiter, quoted, missing, max_line_bytes
            )
        except Mistake as mistake:
            column, expected, found = mistake.args
            mistakes.append((position, column, expected, None if found is None else found[:SHOWN]))
        else:
            ids.append(row_ids)
            numbers.append(row_numbers)
    return ids, numbers, len(lines), mistakes


COLUMNS = [
    ("flag", False, 0),
    ("integer", True, 0),
    ("id", False, 11),
    ("skip", False, 0),
    ("decimal", True, 0),
    ("id", False, 12),
    ("integer", False, 0),
]
LIMIT = 120
NUMBERS = [b"0", b"1", b"-3", b"12.5", b"1e3", b".5", b"5.", b"-", b"+1", b"0x1", b"inf", b"nan", b"1e39", b"1e-400"]
OTHERS = [b"", b"NA", b"9007199254740993", b'"a"', b'"a,b"', b'"say ""x"""', b'"open', b'"x"y', b"ab\r", b'a"b']
fields = st.one_of(
    st.sampled_from(NUMBERS + OTHERS),
    st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")),
    st.just(b"a much longer field that takes more than forty bytes to write down"),
)
good_line = st.tuples(
    st.sampled_from([b"0", b"1"]),
    st.sampled_from([b"", b"NA", b"7", b"-12"]),
    st.text(st.characters(codec="utf-8", exclude_characters='\n\r,:"'), max_size=20).map(str.encode),
    st.just(b"ignored"),
    st.sampled_from([b"", b"0.25", b"-1e-3"]),
    st.sampled_from([b"x", b"12345678", b"123456789"]),
    st.sampled_from([b"0", b"9007199254740992"]),
).map(list)


@st.composite
def texts(draw):
    delimiter = draw(st.sampled_from([b",", b"\t", b"::"]))
    lines = draw(st.lists(st.one_of(good_line, good_line, st.lists(fields, min_size=1, max_size=9)), max_size=8))
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    last = draw(st.sampled_from([b"", end]))
    return delimiter, end.join(delimiter.join(line) for line in lines) + last


@settings(max_examples=300, deadline=None)
@given(texts(), st.booleans())
def test_equals_the_plain_parser(case, quoted):
    delimiter, text = case
    parser = Parser(COLUMNS, delimiter.decode(), quoted=quoted, missing="NA", max_line_bytes=LIMIT)
    ids, numbers, lines, mistakes = parser.parse(text, 1000)
    expected_ids, expected_numbers, expected_lines, expected_mistakes = reference(
        text, COLUMNS, delimiter, quoted, b"NA", LIMIT
    )
    assert mistakes == expected_mistakes
    assert lines == expected_lines
    assert ids.tolist() == expected_ids
    np.testing.assert_array_equal(numbers, np.array(expected_numbers, float).reshape(-1, 4))


@settings(max_examples=200, deadline=None)
@given(st.text('01,"\n\r:.-eNA', max_size=200), st.booleans())
def test_equals_the_plain_parser_on_noise(text, quoted):
    columns = [("decimal", True, 0), ("id", False, 5)]
    parser = Parser(columns, ",", quoted=quoted, missing="NA", max_line_bytes=LIMIT)
    ids, numbers, lines, mistakes = parser.parse(text.encode(), 1000)
    expected = reference(text.encode(), columns, b",", quoted, b"NA", LIMIT)
    assert (ids.tolist(), lines, mistakes) == (expected[0], *expected[2:])
    np.testing.assert_array_equal(numbers, np.array(expected[1], float).reshape(-1, 1))


def test_stops_after_the_allowed_mistakes():
    parser = Parser([("flag", False, 0)], ",", quoted=False, missing="", max_line_bytes=LIMIT)
    ids, numbers, lines, mistakes = parser.parse(b"1\nx\n0\ny\n1\n", 1)
    assert ids.shape == (2, 0)
    assert numbers.tolist() == [[1], [0]]
    assert lines == 4
    assert [mistake[0] for mistake in mistakes] == [1, 3]


def test_many_empty_lines_need_no_memory_for_records():
    columns = [("id", False, i) for i in range(1000)]
    parser = Parser(columns, ",", quoted=False, missing="", max_line_bytes=LIMIT)
    ids, _, lines, mistakes = parser.parse(b"\n" * 1_000_000, 9)
    assert (len(ids), lines, len(mistakes)) == (0, 10, 10)


def test_refuses_an_impossible_format():
    with pytest.raises(ValueError, match="column kind is 'date'"):
        Parser([("date", False, 0)], ",", quoted=False, missing="", max_line_bytes=LIMIT)
    with pytest.raises(ValueError, match="delimiter is ''"):
        Parser([], "", quoted=False, missing="", max_line_bytes=LIMIT)


def test_counts_distinct_ids_exactly():
    random = np.random.default_rng(7)
    ids = random.integers(0, 2**64, 30_000, dtype=np.uint64)
    ids = np.concatenate([ids, ids[:5000], np.array([0, 0, 1, 2**64 - 1], np.uint64)])
    random.shuffle(ids)
    distinct = DistinctIds()
    for part in np.array_split(ids, 7):
        distinct.add(part)
    assert len(distinct) == len(set(ids.tolist()))


def end_of_records(text, delimiter):
    """The specification of `whole_records`, byte by byte."""
    end = at = 0
    begins, inside = True, False  # a value; a quoted one
    while at < len(text):
        letter = text[at : at + 1]
        at += 1
        if inside:
            if letter == b'"' and text[at : at + 1] == b'"':
                at += 1
            elif letter == b'"':
                inside = False
        elif letter == b'"' and begins:
            inside, begins = True, False
        elif letter in b"\r\n":
            at += letter == b"\r" and text[at : at + 1] == b"\n"
            end, begins = at, True
        else:
            begins = letter == delimiter
    return end


@settings(max_examples=1000, deadline=None)
@given(text=st.text(alphabet='a,;"\r\n', max_size=40), delimiter=st.sampled_from(",;"))
def test_whole_records_end_where_the_specification_says(text, delimiter):
    assert whole_records(text.encode(), delimiter) == end_of_records(text.encode(), delimiter.encode())


def test_whole_records_refuse_a_delimiter_of_more_than_one_byte():
    with pytest.raises(ValueError, match="delimiter is '::', it must be one byte"):
        whole_records(b"a", "::")
