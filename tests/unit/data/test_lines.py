import gzip
import io
import os

import pytest

from esd.data.lines import BLOCK_BYTES, MAX_LINE_BYTES, line_blocks, read_line_blocks
from esd.services.domain.errors import InvalidArgument


def test_blocks_end_at_line_ends_and_lose_nothing():
    text = b"".join(b"line %d\r\n" % i for i in range(300_000)) + b"no newline at the end"
    blocks = list(line_blocks(io.BytesIO(text)))
    assert len(blocks) > 2
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    assert max(map(len, blocks)) < BLOCK_BYTES + 100
    assert b"".join(blocks) == text


def test_an_endless_line_is_cut_but_stays_too_long():
    text = b"first\n" + b"x" * (3 * BLOCK_BYTES) + b"\nlast\n"
    blocks = b"".join(line_blocks(io.BytesIO(text)))
    first, endless, last, _ = blocks.split(b"\n")
    assert (first, last) == (b"first", b"last")
    assert MAX_LINE_BYTES < len(endless) < BLOCK_BYTES + MAX_LINE_BYTES + 2


def test_reads_gzip_whatever_its_name(tmp_path):
    file = tmp_path / "train.txt"
    file.write_bytes(gzip.compress(b"a\nb\n"))
    assert b"".join(read_line_blocks(file)) == b"a\nb\n"


def test_empty_file_has_no_blocks(tmp_path):
    file = tmp_path / "empty"
    file.write_bytes(b"")
    assert list(read_line_blocks(file)) == []


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:20] + b"\0\0\0\0" + data[24:]])
def test_damaged_gzip_is_named(tmp_path, damage):
    file = tmp_path / "train.gz"
    file.write_bytes(damage(gzip.compress(bytes(range(256)) * 100)))
    with pytest.raises(InvalidArgument, match=r"train\.gz: damaged gzip data: "):
        list(read_line_blocks(file))


def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path):
    """At the end of a line the mistake would pass unnoticed: there would be fewer samples."""
    file = tmp_path / "train.txt"
    file.write_bytes(b"sample\n" * BLOCK_BYTES)
    blocks = read_line_blocks(file)
    next(blocks)
    os.truncate(file, 7 * (BLOCK_BYTES // 2))
    with pytest.raises(InvalidArgument, match=rf"train\.txt had {7 * BLOCK_BYTES} bytes, and ended after .*cut while"):
        list(blocks)


def test_a_file_that_vanished_is_named(tmp_path):
    with pytest.raises(InvalidArgument, match="gone does not exist"):
        list(read_line_blocks(tmp_path / "gone"))


def test_a_directory_is_no_data_file(tmp_path):
    with pytest.raises(InvalidArgument, match=r"cannot be read: Is a directory"):
        list(read_line_blocks(tmp_path))
