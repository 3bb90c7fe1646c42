"""Events in tables, the schemas that describe them, and the samples in files of them."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from esd.data.schema import Id, IdList, Schema, TableOptions
from esd.data.tables import TableDataset
from esd.services.domain.batches import SampleBatch

SCHEMA = Schema(
    label="clicked",
    ids=("user", "item", "day"),
    crosses=(("user", "item"),),
    dense=("price", "age"),
    log=("price",),
    missing={"item": "", "age": 30},
)
DAYS = [dt.date(2026, 11, day) for day in (1, 1, 2, 3)]
EVENTS = pa.table(
    {
        "user": pa.array([7, -1, 7, 2**40]),
        "item": pa.array(["shoe", None, "Zürich", "shoe"]),
        "day": pa.array(DAYS),
        "price": pa.array([0.0, 19.5, -1.0, 3.0]),
        "unused": pa.array(["a", "b", "c", "d"]),
        "age": pa.array([20, None, 40, 50], pa.int32()),
        "clicked": pa.array([0, 1, 1, 0], pa.int8()),
    }
)
LISTS = Schema(
    label=("clicked", "rating"),
    ids=("user", IdList("tags", max=3, pool="sum"), Id("item", table="items"), IdList("seen", 4, table="items")),
    crosses=(("user", "item"),),
    label_range=(0.0, 5.0),
    missing={"tags": "none"},
    weight="weight",
    group="user",
    tables={"items": TableOptions(dim=4, optimizer="adam")},
)
LISTED = pa.table(
    {
        "user": ["a", "b", "c", "d"],
        "tags": pa.array([["x", "y"], [], None, ["x", "x", None]], pa.list_(pa.string())),
        "item": [7, 8, 7, 9],
        "seen": pa.array([[7, 9], [], [8], None], pa.list_(pa.int64())),
        "clicked": [0, 1, 0, 1],
        "rating": [0.5, 5.0, 3.0, 0.0],
        "weight": [1.0, 0.0, 2.5, 1.0],
    }
)


def write(table: pa.Table, file: Path, piece: int = 3) -> Path:
    """Writes a file of the format that its name ends in, with so many rows in each of its pieces, if it has any."""
    match file.suffix:
        case ".parquet":
            pyarrow.parquet.write_table(table, file, row_group_size=piece)
        case ".arrow":
            with pa.ipc.new_file(file, table.schema) as out:
                out.write_table(table, max_chunksize=piece)
        case ".gz":
            plain = file.with_suffix("")
            pyarrow.csv.write_csv(table, plain)
            file.write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
        case _:
            delimiter = "\t" if file.suffix == ".tsv" else ","
            pyarrow.csv.write_csv(table, file, pyarrow.csv.WriteOptions(delimiter=delimiter))
    return file


def samples(pattern: Path | str, schema: Schema = SCHEMA, batch_size: int = 3, **options: Any) -> SampleBatch:
    batches = list(TableDataset(str(pattern), schema, batch_size, **options))
    assert max(map(len, batches)) <= batch_size
    return SampleBatch.concatenate(batches)
