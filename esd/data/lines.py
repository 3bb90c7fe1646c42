"""Text files, plain or gzip, in blocks of whole lines."""

from __future__ import annotations

import codecs
import gzip
import os
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from itertools import islice
from typing import Protocol

from esd.data.remote import DataFile
from esd.services.domain.errors import InvalidArgument

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 16  # a record has a few hundred bytes; more means that this is another kind of file
_GZIP_MAGIC = b"\x1f\x8b"


class ByteStream(Protocol):
    """The source of line_blocks: a file, a gzip file, a member of a zip archive."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""
        ...


def line_blocks(file: ByteStream) -> Iterator[bytes]:
    """Yields the content in blocks of about 1 MiB that end where a line ends; the last one as the file ends.

    A byte order mark at the beginning is left out. Of a line without end only MAX_LINE_BYTES + 1 bytes are kept: enough
    for the parser to refuse it.
    """
    rest, begun = b"", False
    while chunk := file.read(BLOCK_BYTES):
        chunk, begun = chunk if begun else chunk.removeprefix(codecs.BOM_UTF8), True
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            rest = (rest + chunk)[: MAX_LINE_BYTES + 1]
            continue
        yield rest + chunk[:end]
        rest = chunk[end:]
    if rest:
        yield rest


def first_lines(path: DataFile) -> bytes:
    """Returns the beginning of a file, 1 or 2 MiB that end where a line ends, or the whole of a smaller one.

    Raises:
        InvalidArgument: see read_line_blocks.
    """
    with closing(read_line_blocks(path)) as blocks:
        return b"".join(islice(blocks, 2))  # the last line is a block of its own if the file ends within it


def read_line_blocks(path: DataFile) -> Generator[bytes]:
    """Yields the blocks of a file; gzip is recognised by its content.

    Raises:
        InvalidArgument: there is no such file; it cannot be read, its gzip data is damaged, or it was cut meanwhile.
    """
    try:
        with path.open("rb") as raw:
            size = raw.seek(0, os.SEEK_END)
            raw.seek(0)
            packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else nullcontext(raw) as file:
                yield from line_blocks(file)
            if raw.tell() < size:
                raise InvalidArgument(
                    f"data file {path} had {size} bytes, and ended after {raw.tell()}: it was cut while it was read"
                )
    except FileNotFoundError as error:
        raise InvalidArgument(f"data file {path} does not exist") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidArgument(f"{path}: damaged gzip data: {error}") from error
    except OSError as error:
        raise InvalidArgument(f"data file {path} cannot be read: {error.strerror}") from error
