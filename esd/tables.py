"""`esd.read`: samples of one's own tables, for `DispatcherClient.submit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from esd.data.opening import table_reader
from esd.data.schema import Schema
from esd.data.schema_file import read_schema
from esd.services.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from esd.data.tables.dataset import Frame, FrameDataset, TableDataset


def read(
    source: str | Path | Frame,
    schema: Schema | str | Path,
    *,
    batch_size: int = 1024,
    skip_bad: int = 0,
    labelled: bool = True,
) -> TableDataset | FrameDataset:
    """Opens files or a frame as a stream of samples, in the order of file names and rows.

        schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
        for batch in esd.read("events/day=*/*.parquet", schema):
            ...

    `split(last="1d")` of what it returns is two streams: all but the last day, and that day, by the schema's `time`.

    Args:
        source: a file, a folder or a pattern (Parquet, Arrow, CSV); or a frame of pandas, polars or pyarrow.
        schema: which columns are what, or the TOML file that says so (`--schema`).
        batch_size: samples of a batch, at most.
        skip_bad: rows that are no samples and are left out before one is an error.
        labelled: False for samples to score (`TrainedModel.scores`): columns of labels, weight, group and time need not
            be there, and the labels are NaN.

    Raises:
        NotFound: there is no such file, or pyarrow is not installed.
        InvalidArgument: a file or the frame does not fit the schema; `batch_size` or `skip_bad` is too small.
    """
    reader = table_reader()
    if not isinstance(schema, Schema | str | Path):
        raise InvalidArgument(f"the schema is a {type(schema).__name__}, it must be an esd.Schema or a file's path")
    described = schema if isinstance(schema, Schema) else read_schema(Path(schema))
    if isinstance(source, list | tuple) and source and all(isinstance(each, str | Path) for each in source):
        raise InvalidArgument("several files are one text with commas between them, 'a.csv,b.csv', or a pattern")
    opened: TableDataset | FrameDataset
    if isinstance(source, str | Path):
        opened = reader.TableDataset(str(source), described, batch_size, skip_bad, labelled=labelled)
    else:
        opened = reader.FrameDataset(source, described, batch_size, skip_bad, labelled=labelled)
    return opened
