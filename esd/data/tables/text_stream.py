"""The bytes of a file of texts on their way to pyarrow: checked for faults that pyarrow does not report by name."""

from __future__ import annotations

import codecs
import re
from typing import cast

import pyarrow as pa

from esd.data.remote import DataFile
from esd.services.domain.errors import InvalidArgument

MAX_LINE_BYTES = 1 << 22
SUBSTITUTE = "\x1a"  # ASCII's own mark for a character that could not be read
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # what `surrogateescape` makes of such a byte
_LONGEST_CHARACTER = 4  # bytes


class TextStream:
    """A stream of UTF-8 that counts lines and quotes. Bytes that are not UTF-8 become `SUBSTITUTE`, one for one.

    Attributes:
        lines: how many lines have ended so far.
        substituted: whether a byte was not UTF-8.
        has_zeros: whether a byte was zero, as the end of a file is that was not written before a machine failed.
        reported: how many ends of lines stand in values that were reported as rows between two quotes.
    """

    def __init__(self, source: pa.NativeFile, file: DataFile) -> None:
        self._source = source
        self._file = file
        self._rest = b""  # the beginning of a character
        self._line_bytes = 0  # of the line that has not ended
        self._odd = self._quoted = self._ended = False
        self.lines = 0
        self.substituted = self.has_zeros = False
        self.reported = 0

    @property
    def one_may_be_open(self) -> bool:
        """Whether it was read to its end and has an odd number of quotes."""
        return self._ended and self._odd

    @property
    def quoted(self) -> bool:
        """Whether a quote was read."""
        return self._quoted

    @property
    def total_lines(self) -> int:
        """The lines of the whole stream, when it was read to its end."""
        return self.lines + (self._line_bytes > 0)

    def read(self, size: int) -> bytes:
        """Reads up to `size` bytes; none at the end.

        Raises:
            InvalidArgument: a line has more than `MAX_LINE_BYTES`.
        """
        wanted = max(size - len(self._rest), _LONGEST_CHARACTER)
        text = b""
        while not text and not self._ended:  # one byte alone may be no character yet
            found = cast(bytes, self._source.read(wanted))
            self._ended = not found
            text = self._as_utf8(self._rest + found, final=not found)
        self.has_zeros |= b"\0" in text
        quotes = text.count(b'"')
        self._odd ^= bool(quotes % 2)
        self._quoted |= quotes > 0
        self._count_lines(text)
        return text

    def _as_utf8(self, text: bytes, *, final: bool) -> bytes:
        """Returns whole characters; the beginning of one that is cut off waits for its end."""
        if text.isascii():
            self._rest = b""
            return text
        try:
            _, used = codecs.utf_8_decode(text, "strict", final)
            self._rest = text[used:]
            return text[:used]
        except UnicodeDecodeError:
            self.substituted = True
            decoded, used = codecs.utf_8_decode(text, "surrogateescape", final)
            self._rest = text[used:]
            return _NOT_UTF8.sub(SUBSTITUTE, decoded).encode()

    def _count_lines(self, text: bytes) -> None:
        ended = text.count(b"\n")
        self.lines += ended
        if not ended:
            self._line_bytes += len(text)
        else:
            self._line_bytes = len(text) - text.rfind(b"\n") - 1
        if self._line_bytes > MAX_LINE_BYTES:
            raise InvalidArgument(
                f"data file {self._file}: line {self.lines + 1} has more than {MAX_LINE_BYTES:,} bytes, which no row "
                "of a table has; is it another kind of file?"
            )
