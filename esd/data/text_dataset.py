"""A data set of delimited text files, each of whose records is a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from esd.data.dataset import columns_of
from esd.data.hashing import READER_VERSION
from esd.data.known_files import KnownFiles
from esd.data.lines import first_lines, read_line_blocks
from esd.data.reader import ReadRequest
from esd.data.records import RecordReader, Records, TextFormat
from esd.data.remote import DataFile
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import single_ids


@dataclass(frozen=True, slots=True)
class TextSource:
    """How one kind of file becomes samples. It is a reader: called with a request, it opens a data set.

    Attributes:
        fields: names of the F fields.
        dense_features: names of the d dense features.
        to_samples: n records to n samples.
    """

    name: str
    text_format: TextFormat
    fields: tuple[str, ...]
    dense_features: tuple[str, ...]
    to_samples: Callable[[Records], SampleBatch]

    def __call__(self, request: ReadRequest) -> TextDataset:
        """Opens the files that the request names."""
        return TextDataset(self, request.files(), request.batch_size, request.skip_bad)


class TextFiles:
    """Files of one format, one after the other, each in its order.

    The beginning of every file is looked at before the first record: an empty one, or one of another kind, is refused
    at once and not after a day of training.

    Args:
        text_format: the format of the files.
        files: at least one.
        skip_bad: malformed records of all files together that are skipped before one is an error.

    Attributes:
        skipped: malformed records that the latest reading has skipped so far.

    Raises:
        InvalidArgument: a file does not exist, cannot be read, has no records or is of another format.
    """

    def __init__(self, text_format: TextFormat, files: tuple[DataFile, ...], skip_bad: int) -> None:
        reader = RecordReader(text_format, skip_bad)
        for file in files:
            reader.check_beginning(str(file), first_lines(file))
        self._format = text_format
        self._files = files
        self._known = KnownFiles(files)
        self._skip_bad = skip_bad
        self.skipped = 0

    def __str__(self) -> str:
        return str(self._files[0]) if len(self._files) == 1 else f"{self._files[0]} and {len(self._files) - 1} more"

    @property
    def content(self) -> str:
        """Names the content of the files in their order, which are read for it."""
        return self._known.content_of(self._files[0]) if len(self._files) == 1 else self._known.content

    def records(self) -> Iterator[Records]:
        """Reads all files, in blocks.

        Raises:
            InvalidArgument: a malformed record when `skip_bad` of them were skipped already; all records are malformed;
                a file has changed since its content was named.
        """
        reader = RecordReader(self._format, self._skip_bad)
        self.skipped = 0
        found = False
        for file in self._files:
            self._known.expect_unchanged(file)
            for records in reader.read(str(file), read_line_blocks(file)):
                self.skipped = reader.skipped
                found = True
                yield records
        self.skipped = reader.skipped
        if not found:
            raise InvalidArgument(f"{self}: no line is a record, all {reader.skipped:,} were skipped (--skip-bad)")


class TextDataset:
    """A `Dataset` over files whose records are samples. It raises the errors of `TextFiles`."""

    endless = False
    samples: int | None = None

    def __init__(self, source: TextSource, files: tuple[DataFile, ...], batch_size: int, skip_bad: int) -> None:
        self._source = source
        self._files = TextFiles(source.text_format, files, skip_bad)
        self._batch_size = batch_size
        self.name = source.name
        self.features = single_ids(source.fields)
        self.labels = ("label",)
        self.dense_features = source.dense_features

    @property
    def skipped(self) -> int:
        """How many malformed records the latest iteration has skipped so far."""
        return self._files.skipped

    @property
    def fingerprint(self) -> str:
        """Names the reader and the content of the files in their order, which are read for it."""
        return f"{self.name} ({self._files.content}, reader {READER_VERSION})"

    def __iter__(self) -> Iterator[SampleBatch]:
        columns = columns_of(self)
        for records in self._files.records():
            samples = self._source.to_samples(records).named(columns)
            for start in range(0, len(samples), self._batch_size):
                yield samples[start : start + self._batch_size]
