"""How a data set is opened by name: `flights`, `criteo:PATH`, `synthetic:zipf?samples=100000`, ..."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from esd.data.dataset import Dataset
from esd.data.installed import installed_readers, open_installed
from esd.data.log_address import is_log
from esd.data.reader import Reader, ReadRequest
from esd.data.readers.flights import FlightsDataset
from esd.data.readers.graph import GraphDataset
from esd.data.readers.synthetic import SyntheticDataset
from esd.data.readers.taobao import TaobaoDataset
from esd.data.readers.text_sources import AVAZU, CRITEO, CRITEO_SEARCH, movielens
from esd.data.schema import Schema
from esd.data.schema_file import read_schema
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.extras import reader_module

BUILT_IN = "comes with ESD"


def open_data(
    uri: str,
    batch_size: int,
    *,
    seed: int,
    skip_bad: int = 0,
    data_dir: Path | None = None,
    schema: Path | Schema | None = None,
) -> Dataset:
    """Opens a data set.

    Args:
        uri: with a schema, the files of a table (esd/data/paths.py) or a log (esd/data/log_address.py). Without: the
            name of a reader, which comes with ESD or with another installed package, and its argument: `flights`,
            `criteo:PATH`.
        batch_size: samples of a yielded batch, at most; at least 1.
        seed: decides the samples of synthetic streams; the other data sets do not depend on it.
        skip_bad: malformed records of a file that are skipped and counted before one is an error.
        data_dir: where relative paths start; default: the working directory.
        schema: the columns of tables, or the file that describes them.

    Raises:
        NotFound: a package that reads the file is not installed.
        InvalidArgument: there is no such file; unknown name, bad option, unreadable file; a reader of one's own fails.
    """
    if batch_size < 1:
        raise InvalidArgument(f"batch_size is {batch_size}, it must be at least 1")
    if skip_bad < 0:
        raise InvalidArgument(f"--skip-bad is {skip_bad}, it must be at least 0")
    folder = data_dir or Path()
    if schema is not None:
        described = read_schema(schema) if isinstance(schema, Path) else schema
        if is_log(uri):
            log: Dataset = log_reader().LogDataset(uri, described, batch_size, skip_bad)
            return log
        table: Dataset = table_reader().TableDataset(uri, described, batch_size, skip_bad, folder)
        return table
    if is_log(uri):
        raise InvalidArgument(f"data {uri.partition('?')[0]} is a log, whose columns --schema FILE describes")
    name, _, argument = uri.partition(":")
    request = ReadRequest(name, argument, batch_size, seed, skip_bad, folder)
    opened = _READERS[name](request) if name in _READERS else open_installed(request)
    if opened is None:
        if (folder / uri).exists():
            raise InvalidArgument(
                f"data {uri!r} are files of your own, which need --schema: esd data inspect {uri} > schema.toml "
                "proposes one"
            )
        known = ", ".join(readers())
        raise InvalidArgument(
            f"data {uri!r} is unknown; there are {known} (esd data readers); files of your own need --schema"
        )
    return opened


def readers() -> dict[str, str]:
    """Returns where each reader comes from, by its name."""
    return dict.fromkeys(_READERS, BUILT_IN) | {
        name: " and ".join(packages) for name, packages in installed_readers().items() if name not in _READERS
    }


def table_reader() -> Any:
    """Returns the module esd.data.tables.

    Raises:
        NotFound: pyarrow is not installed.
    """
    return _with_pyarrow("esd.data.tables")


def log_reader() -> Any:
    """Returns the module esd.data.logs.

    Raises:
        NotFound: pyarrow is not installed.
    """
    return _with_pyarrow("esd.data.logs")


def _with_pyarrow(module: str) -> Any:
    return reader_module(module, "a reader of tables", "pyarrow", "tables")


def _flights(request: ReadRequest) -> Dataset:
    request.nothing()
    return FlightsDataset(request.batch_size)


def _journey(request: ReadRequest) -> Dataset:
    request.nothing()
    journey: Dataset = _with_pyarrow("esd.data.readers.journey").JourneyDataset(request.batch_size)
    return journey


def _synthetic(request: ReadRequest) -> Dataset:
    return SyntheticDataset.open(request.argument, request.batch_size, request.seed)


_READERS: dict[str, Reader] = {
    "flights": _flights,
    "journey": _journey,
    "criteo": CRITEO,
    "avazu": AVAZU,
    "criteo-search": CRITEO_SEARCH,
    "movielens": movielens,
    "taobao": TaobaoDataset,
    "graph": GraphDataset,
    "synthetic": _synthetic,
}
