"""How a data set is opened by name: `flights`, `criteo:PATH`, `synthetic:zipf?samples=100000`, ..."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from services.data.dataset import Dataset
from services.data.readers.flights import FlightsDataset
from services.data.readers.synthetic import SyntheticDataset
from services.data.readers.text_sources import AVAZU, CRITEO, CRITEO_SEARCH, movielens_source
from services.data.schema_file import read_schema
from services.data.text_dataset import TextDataset, TextSource
from services.domain.errors import InvalidArgument, NotFound

_FILES: dict[str, TextSource] = {source.name: source for source in (CRITEO, AVAZU, CRITEO_SEARCH)}
_KNOWN = "flights, journey, criteo:PATH, avazu:PATH, criteo-search:PATH, movielens:PATH, synthetic:criteo|avazu|zipf"


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
