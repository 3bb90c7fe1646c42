"""A damaged file is no sound one: it is refused by name, or its bad rows are; and nothing learned is no success."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import esd
from esd.data import open_data
from esd.data.tables import files, propose, text_stream
from esd.data.tables.text_stream import TextStream
from esd.services.domain.errors import InvalidArgument
from tests.support.event_tables import write

SCHEMA = esd.Schema("y", ("u",))
GOOD = "y,u,i\n1,a,1\n0,b,2\n"


def read(source: Path, skip_bad: int = 0, schema: esd.Schema = SCHEMA) -> tuple[int, int]:
    dataset = esd.read(source, schema, skip_bad=skip_bad)
    return sum(len(batch) for batch in dataset), dataset.skipped


def test_a_header_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "e.csv"
    file.write_bytes("y,u,größe\n1,a,1\n".encode("latin-1"))
    for look in (lambda: read(file), lambda: propose(str(file), rows=10)):
        with pytest.raises(InvalidArgument, match=r"e\.csv is not UTF-8, as its header shows"):
            look()


@pytest.mark.parametrize("bad", ["0,ü,2", "0,ü,2,4", "ü,c,2"])
def test_a_row_that_is_no_utf8_is_a_bad_row_like_others(tmp_path: Path, bad: str) -> None:
    file = tmp_path / "e.csv"
    file.write_bytes(f"{GOOD}{bad}\n1,ß,3\n".encode("latin-1") + "0,ü,4\n".encode())
    with pytest.raises(InvalidArgument, match=r"e\.csv: row 3: .*--skip-bad N skips it; esd\.read: skip_bad=N"):
        read(file)
    assert read(file, skip_bad=2) == (3, 2)


@pytest.mark.parametrize(
    ("content", "kind"),
    [(GOOD.encode(), "not compressed"), (b"\x28\xb5\x2f\xfd rest", "compressed with zstd"), (b"P", "not compressed")],
)
def test_a_file_that_is_not_compressed_as_its_ending_says_is_told_so(tmp_path: Path, content: bytes, kind: str) -> None:
    file = tmp_path / "e.csv.gz"
    file.write_bytes(content)
    for look in (lambda: read(file), lambda: propose(str(file), rows=10)):
        with pytest.raises(InvalidArgument, match=rf"e\.csv\.gz is {kind}, and its ending \.gz says"):
            look()


@pytest.mark.parametrize("bad", ["0,b\0,2", "0,b,2\n0,\0\0\0,3"])
def test_a_row_with_zero_bytes_is_a_bad_row(tmp_path: Path, bad: str) -> None:
    """A machine that fails before a file is on its disk leaves zeros in the place of the end."""
    file = tmp_path / "e.csv"
    file.write_text(f"{GOOD}{bad}\n1,c,3\n")
    with pytest.raises(InvalidArgument, match=r"e\.csv: row \d: column 'u': expected a text without zero bytes"):
        read(file)
    assert read(file, skip_bad=1) == (3 + bad.count("\n"), 1)


def test_characters_are_whole_wherever_the_stream_is_cut(tmp_path: Path) -> None:
    text = "aé€𝄞\n".encode() * 3 + b"\xe9\xff" + "𝄞".encode() + b"\xf0\x9d"
    for size in range(7, 13):
        stream = TextStream(pa.BufferReader(text), tmp_path)
        parts = iter(lambda stream=stream, size=size: stream.read(size), b"")
        assert b"".join(parts) == "aé€𝄞\n".encode() * 3 + b"\x1a\x1a" + "𝄞".encode() + b"\x1a\x1a"
        assert stream.substituted


@pytest.mark.parametrize("column", ["u", "note"])
def test_rows_between_two_quotes_are_no_value(tmp_path: Path, column: str) -> None:
    at = ["y", "u", "note"].index(column)
    rows = [[str(row % 2), f"u{row}", f"n{row}"] for row in range(50)]
    rows[3][at], rows[20][at] = '"x', 'x"'
    file = tmp_path / "e.csv"
    file.write_text("y,u,note\n" + "".join(",".join(row) + "\n" for row in rows))
    with pytest.raises(InvalidArgument, match=r"e\.csv: .*(18 lines that look like rows|the lines between look like)"):
        read(file)
    if column == "u":
        assert read(file, skip_bad=1) == (32, 1)


def test_texts_of_many_lines_are_values(tmp_path: Path) -> None:
    file = tmp_path / "e.csv"
    file.write_text('y,u,note\n1,"Bern,\nCH\n\nEurope","a\nb, c\nd"\n\n0,"x\ny",z\n')
    assert read(file) == (2, 0)


@pytest.mark.parametrize("packed", [False, True])
def test_an_endless_line_is_refused_in_bounded_memory(tmp_path: Path, packed: bool) -> None:
    text = b"y,u\n1,a\n0," + b"x" * (3 * text_stream.MAX_LINE_BYTES)
    file = tmp_path / ("e.csv.gz" if packed else "e.csv")
    file.write_bytes(gzip.compress(text) if packed else text)
    with pytest.raises(InvalidArgument, match=r"line 3 has more than 4,194,304 bytes, which no row of a table has"):
        read(file)


def test_a_page_whose_checksum_differs_is_refused(tmp_path: Path) -> None:
    table = pa.table({"y": [1, 0] * 500, "u": [f"u{row:04}" for row in range(1000)]})
    file = tmp_path / "e.parquet"
    pyarrow.parquet.write_table(table, file, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(file.read_bytes())
    content[content.find(b"u0500") + 1] = ord("9")
    file.write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"e\.parquet cannot be read: .*CRC"):
        read(file)


@pytest.mark.parametrize("name", ["e.parquet", "e.arrow"])
def test_flipped_bits_are_refused_by_name_or_read(tmp_path: Path, name: str) -> None:
    """Without checksums a flipped bit of a value is another value; but no error is without the file's name."""
    rng = np.random.default_rng(8)
    table = pa.table({"y": [1, 0] * 400, "u": pa.array([f"u{row % 70}" for row in range(800)]).dictionary_encode()})
    whole = write(table, tmp_path / name, piece=300).read_bytes()
    refused = 0
    for _ in range(150):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), 3):
            content[at] ^= 1 << rng.integers(0, 8)
        (tmp_path / name).write_bytes(content)
        try:
            read(tmp_path / name, skip_bad=800)
        except InvalidArgument as error:
            assert name in str(error)  # noqa: PT017 - most are refused, and some are read
            refused += 1
    assert refused > 30


def test_rows_of_which_none_is_a_sample_are_refused(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("y,u\n" + "2,a\n" * 50)
    with pytest.raises(InvalidArgument, match="no row is a sample, all 50 were skipped"):
        read(tmp_path / "e.csv", skip_bad=1000)
    (tmp_path / "r.csv").write_text("userId,movieId,rating,timestamp\n" + "1,2,x,4\n" * 50)
    with pytest.raises(InvalidArgument, match="no line is a record, all 50 were skipped"):
        list(open_data(f"movielens:{tmp_path}/r.csv", 10, seed=0, skip_bad=1000))


def test_a_dense_feature_far_from_one_is_named(caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table({"y": [0, 1] * 3, "u": list("abcabc"), "price": [1e12] * 6, "age": [30] * 6})
    list(esd.read(table, esd.Schema("y", ("u",), dense=("price", "age")), batch_size=2))
    assert len(caplog.records) == 1
    assert "dense feature 'price' has values up to 1e+12" in caplog.text
    caplog.clear()
    list(esd.read(table, esd.Schema("y", ("u",), dense=("price", "age"), log=("price",))))
    assert not caplog.records


def test_users_whose_lines_stand_apart_are_refused(tmp_path: Path) -> None:
    lines = [f"{user},{item},1,pv,{100 + item}\n" for user in (1, 2, 3) for item in range(4)]
    (tmp_path / "b.csv").write_text("".join(lines))
    assert sum(len(batch) for batch in open_data(f"taobao:{tmp_path}/b.csv", 100, seed=0))
    (tmp_path / "b.csv").write_text("".join(lines + lines[:1]))
    with pytest.raises(InvalidArgument, match=r"a user returns among the views 13 to 13, .* sort the file by user"):
        list(open_data(f"taobao:{tmp_path}/b.csv", 100, seed=0))


def test_no_thread_but_the_callers_runs_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of pyarrow that calls Python while the process ends aborts it."""
    callers = set()

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any) -> Any:
            callers.add(threading.get_ident())
            return function(*arguments)

        return noting

    monkeypatch.setattr(TextStream, "read", noted(TextStream.read))
    monkeypatch.setattr(files, "_CSV_BYTES", 256)
    (tmp_path / "e.csv").write_text("y,u\n" + "1,a\n0,b\n1\n" * 1000)
    left_out: list[int] = []
    found = files.pieces(tmp_path / "e.csv", ["u"], ["y"], noted(lambda number, _: left_out.append(number)))
    assert (sum(len(piece.batch) for piece in found), left_out) == (2000, list(range(3, 3001, 3)))
    assert callers == {threading.get_ident()}


def test_a_mark_of_byte_order_within_a_file_is_a_part_of_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a block begins."""
    monkeypatch.setattr(files, "_CSV_BYTES", 16)
    (tmp_path / "e.csv").write_text("\ufeffu,y\n" + "\ufeffa,1\n" * 20)
    found = files.pieces(tmp_path / "e.csv", ["u"], ["y"])
    assert [text for piece in found for text in piece.batch["u"].to_pylist()] == ["\ufeffa"] * 20


def test_a_record_beyond_the_size_of_a_block_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CSV_BYTES", 64)
    (tmp_path / "e.csv").write_text('y,u\n1,"' + "text\n" * 60 + '"\n')
    with pytest.raises(InvalidArgument, match=r"e\.csv cannot be read: a row has more than 128 bytes"):
        read(tmp_path / "e.csv")


def test_a_refused_file_leaves_no_thread_that_aborts_the_process(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("y,u\n")
    program = (
        "import esd, sys\n"
        "try:\n"
        f"    esd.read({str(tmp_path / 'e.csv')!r}, esd.Schema('y', ('u',)))\n"
        "except esd.errors.InvalidArgument:\n"
        "    sys.exit(2)\n"
    )
    assert [subprocess.run([sys.executable, "-c", program], check=False).returncode for _ in range(5)] == [2] * 5


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(b"u,y\na,1\n", mtime=0), "is compressed with gzip, not a file of texts"),
        (b"PK\x03\x04" + b"\xff" * 50, "is a zip file or a workbook of a spreadsheet"),
        ("u,y\na,1\n".encode("utf-16-le"), "has zero bytes in its header: it is binary, or written in UTF-16"),
    ],
    ids=["gzip", "zip", "UTF-16"],
)
def test_a_file_of_another_kind_than_its_ending_says_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "e.csv").write_bytes(content)
    with pytest.raises(InvalidArgument, match=told):
        list(esd.read(tmp_path / "e.csv", esd.Schema("y", ("u",))))


def test_a_text_that_utf8_cannot_write_is_refused_in_a_frame() -> None:
    class Frame:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table({"u": ["a\udce9"], "y": [1]}).__arrow_c_stream__(requested_schema)

    with pytest.raises(InvalidArgument, match=r"has a text that UTF-8 cannot write, with '\\udce9' in it"):
        esd.read(Frame(), esd.Schema("y", ("u",)))


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"y": [0] * 200, "w": [1.0] * 200}, "label 'y' is 0 in all 200 samples: there is nothing to learn"),
        ({"y": [0, 1] * 100, "w": [0.0] * 200}, "weight 'w' is 0 in all 200 samples: nothing is learned"),
        ({"y": [0, 1] * 100, "w": [0.0, 1.0] * 100}, ""),
        ({"y": [1] * 5, "w": [1.0] * 5}, ""),  # too few to tell
    ],
)
def test_samples_of_which_nothing_is_learned_are_named(
    caplog: pytest.LogCaptureFixture, columns: dict[str, list[float]], told: str
) -> None:
    frame = pa.table(columns | {"u": ["a"] * len(columns["y"])})
    list(esd.read(frame, esd.Schema("y", ("u",), weight="w"), batch_size=64))
    assert [record.getMessage() for record in caplog.records] == ([told] if told else [])
