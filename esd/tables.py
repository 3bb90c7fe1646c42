"""`esd.read`: samples from a user's own tables, for `DispatcherClient.submit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from esd.data.log_address import is_log
from esd.data.opening import log_reader, table_reader
from esd.data.schema import Schema
from esd.data.schema_file import read_schema
from esd.services.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from esd.data.logs import LogDataset
    from esd.data.tables.dataset import Frame, FrameDataset, TableDataset


def read(
    source: str | Path | Frame,
    schema: Schema | str | Path,
    *,
    batch_size: int = 1024,
    skip_bad: int = 0,
    labelled: bool = True,
) -> TableDataset | FrameDataset | LogDataset:
    """Opens files or a frame as a stream of samples, in the order of file names and rows.

        schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
        for batch in esd.read("events/day=*/*.parquet", schema):
            ...

    The method `split(last="1d")` of the result returns two streams, cut by the schema's `time`: the last day, and all
    samples before it.

    Args:
        source: a file, a folder or a pattern (Parquet, Arrow, CSV), also in an object store (`s3://bucket/day=*`,
            `gs://`); or a log, which has no end unless `?until=` gives one: a stream of Redis or Valkey
            (`redis+stream://HOST:PORT/KEY`), a topic (`kafka://HOST:PORT/TOPIC`), a stream of NATS
            (`nats://HOST:PORT/STREAM`); or a frame of pandas, polars or pyarrow.
        schema: the roles of the columns, or the path of a TOML file with them (`--schema`).
        batch_size: largest number of samples of a batch.
        skip_bad: number of malformed rows to skip before a malformed row is an error.
        labelled: False for samples to score (`TrainedModel.scores`): columns of labels, weight, group and time may be
            missing, and the labels are NaN.

    Raises:
        NotFound: the file does not exist, or pyarrow is not installed.
        InvalidArgument: a file or the frame does not fit the schema, or `batch_size` or `skip_bad` is too small.

    Example:
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
        >>> for batch in esd.read("events.csv", schema):
        ...     print(len(batch), batch.fields, batch.dense.ravel().tolist())
        2 2 [1.5, 3.0]
    """
    reader = table_reader()
    if not isinstance(schema, Schema | str | Path):
        raise InvalidArgument(f"the schema is a {type(schema).__name__}, it must be an esd.Schema or a file's path")
    described = schema if isinstance(schema, Schema) else read_schema(Path(schema))
    if isinstance(source, list | tuple) and source and all(isinstance(each, str | Path) for each in source):
        raise InvalidArgument("several files must be one text with commas, 'a.csv,b.csv', or a pattern, not a list")
    opened: TableDataset | FrameDataset | LogDataset
    if isinstance(source, str) and is_log(source):
        opened = log_reader().LogDataset(source, described, batch_size, skip_bad, labelled=labelled)
    elif isinstance(source, str | Path):
        opened = reader.TableDataset(str(source), described, batch_size, skip_bad, labelled=labelled)
    else:
        opened = reader.FrameDataset(source, described, batch_size, skip_bad, labelled=labelled)
    return opened
