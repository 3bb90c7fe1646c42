"""A data set that is one delimited text file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from services.data.dataset import READER_VERSION
from services.data.lines import read_line_blocks
from services.data.records import RecordReader, Records, TextFormat
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument, NotFound


@dataclass(frozen=True, slots=True)
class TextSource:
    """How one kind of file becomes samples.

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


class TextDataset:
    """Implements services.data.dataset.Dataset over one file, in file order."""

    endless = False
    samples: int | None = None

    def __init__(self, source: TextSource, path: Path, batch_size: int, skip_bad: int) -> None:
        try:
            stat = path.stat()
        except FileNotFoundError as error:
            raise NotFound(f"data file {path} does not exist") from error
        except OSError as error:
            raise InvalidArgument(f"data file {path} cannot be read: {error.strerror}") from error
        if not path.is_file():
            raise InvalidArgument(f"data file {path} is not a file; {source.name} reads one file, plain or gzip")
        self._source = source
        self._path = path
        self._batch_size = batch_size
        self._skip_bad = skip_bad
        self.name = source.name
        self.fields = source.fields
        self.dense_features = source.dense_features
        self.skipped = 0
        self.fingerprint = f"{source.name}:{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}:v{READER_VERSION}"

    def __iter__(self) -> Iterator[SampleBatch]:
        reader = RecordReader(str(self._path), self._source.text_format, self._skip_bad)
        for records in reader.read(read_line_blocks(self._path)):
            self.skipped = reader.skipped
            samples = self._source.to_samples(records)
            for start in range(0, len(samples), self._batch_size):
                yield samples[start : start + self._batch_size]
        self.skipped = reader.skipped
