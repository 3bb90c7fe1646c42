"""What a data set is, and how one is opened by name: `flights`, `criteo:PATH`, `synthetic:zipf?samples=100000`, ..."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from services.data.readers.flights import FlightsDataset
from services.data.readers.synthetic import SyntheticDataset
from services.data.readers.text_sources import AVAZU, CRITEO, CRITEO_SEARCH, movielens_source
from services.data.schema_file import read_schema
from services.data.text_dataset import TextDataset, TextSource
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument, NotFound
from services.domain.features import Feature

_FILES: dict[str, TextSource] = {source.name: source for source in (CRITEO, AVAZU, CRITEO_SEARCH)}
_KNOWN = "flights, journey, criteo:PATH, avazu:PATH, criteo-search:PATH, movielens:PATH, synthetic:criteo|avazu|zipf"


class Dataset(Protocol):
    """A stream of samples, in training order. Every iteration starts again and yields the same samples.

    Memory stays bounded however long the stream is. Iteration raises InvalidArgument on a malformed record,
    naming file, line and column.
    """

    @property
    def name(self) -> str:
        """Name of the reader: flights, criteo, avazu, criteo-search, movielens, synthetic:criteo, ..."""
        ...

    @property
    def features(self) -> tuple[Feature, ...]:
        """The F features of ids, in the order in which SampleBatch has their ids."""
        ...

    @property
    def dense_features(self) -> tuple[str, ...]:
        """Names of the d dense features: the columns of SampleBatch.dense; may be empty."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the L labels: the columns of SampleBatch.labels."""
        ...

    @property
    def samples(self) -> int | None:
        """Samples of the whole stream; None when that is unknown before it is read, or when the stream is endless."""
        ...

    @property
    def endless(self) -> bool:
        """Whether the stream has no end."""
        ...

    @property
    def skipped(self) -> int:
        """How many malformed records the latest iteration has skipped so far."""
        ...

    @property
    def fingerprint(self) -> str:
        """Names source, content and reader version, at most 1,000 characters; equal ones mean equal samples."""
        ...

    def __iter__(self) -> Iterator[SampleBatch]:
        """Yields batches of 1 to `batch_size` samples."""
        ...


def open_data(
    uri: str, batch_size: int, *, seed: int, skip_bad: int = 0, data_dir: Path | None = None, schema: Path | None = None
) -> Dataset:
    """Opens a data set.

    Args:
        uri: with a schema, the files of a table (services/data/tables/files.py). Without: flights, journey,
            criteo:PATH, avazu:PATH, criteo-search:PATH, movielens:PATH (plain or gzip), or
            synthetic:criteo|avazu|zipf, optionally with ?samples=N and more (services/data/readers/synthetic.py).
        batch_size: samples of a yielded batch, at most; at least 1.
        seed: decides the samples of synthetic streams; the other data sets do not depend on it.
        skip_bad: malformed records of a file that are skipped and counted before one is an error.
        data_dir: where relative paths start; default: the working directory.
        schema: file that says what the columns of somebody's table are.

    Raises:
        NotFound: the file does not exist, or a package that reads it is not installed.
        InvalidArgument: unknown name, bad option, unreadable file.
    """
    if batch_size < 1:
        raise InvalidArgument(f"batch_size is {batch_size}, it must be at least 1")
    if skip_bad < 0:
        raise InvalidArgument(f"--skip-bad is {skip_bad}, it must be at least 0")
    if schema is not None:
        opened: Dataset = table_reader().TableDataset(uri, read_schema(schema), batch_size, skip_bad, data_dir)
        return opened
    name, _, rest = uri.partition(":")
    if uri == "flights":
        return FlightsDataset(batch_size)
    if uri == "journey":
        journey: Dataset = _with_pyarrow("services.data.readers.journey").JourneyDataset(batch_size)
        return journey
    if name == "synthetic":
        return SyntheticDataset.open(rest, batch_size, seed)
    if name not in (*_FILES, "movielens"):
        raise InvalidArgument(f"data {uri!r} is unknown; there are {_KNOWN}; files of your own need --schema")
    if not rest:
        raise InvalidArgument(f"data {uri!r} names no file, write {name}:PATH")
    path = (data_dir or Path()) / Path(rest).expanduser()
    source = movielens_source(path) if name == "movielens" else _FILES[name]
    return TextDataset(source, path, batch_size, skip_bad)


def table_reader() -> Any:
    """Returns the module services.data.tables.

    Raises:
        NotFound: pyarrow is not installed.
    """
    return _with_pyarrow("services.data.tables")


def _with_pyarrow(module: str) -> Any:
    """Imports a module that needs pyarrow, which is optional, when it is needed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise NotFound("Parquet files are read with pyarrow: pip install 'esd-train[tables]'") from error
