"""Bad data and bad models: each is refused by name, before anything starts or without harm to the table it was for."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from esd.run.options import RunOptions
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from tests.support import training
from tests.support.models import assert_same_model

ROWS, WRONG = 256, 70  # the row, counted from 0, that is changed; some iterations are trained before it
SCHEMA = 'label = "clicked"\nids = ["user", { column = "tags", max = 3 }]\ndense = ["price"]\n'


def events(day: int) -> pa.Table:
    rng = np.random.default_rng(day)
    return pa.table(
        {
            "user": [f"u{int(60 * each**2)}" for each in rng.random(ROWS)],
            "tags": [[f"t{int(20 * each)}" for each in rng.random(count)] for count in rng.integers(0, 4, ROWS)],
            "price": rng.uniform(0.5, 2, ROWS).astype(np.float32),
            "clicked": rng.integers(0, 2, ROWS, dtype=np.int8),
        }
    )


def with_row(column: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    """Puts another value into a row."""

    def changed(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[WRONG] = value
        return table.set_column(table.column_names.index(column), column, pa.array(values))

    return changed


def with_type(column: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(column), column, pa.array(range(len(table)), kind))

    return changed


@dataclass(frozen=True)
class Case:
    """A mistake, and the message that it must give.

    Attributes:
        message: a pattern; file names are without their folder.
        second, third: make the files of these days from good ones; None if the file is missing.
        options: changed options.
        starts: whether the mistake shows only when the job runs.
    """

    message: str
    second: Callable[[pa.Table], pa.Table] = lambda table: table
    third: Callable[[pa.Table], pa.Table] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    starts: bool = False


PLACE = rf"day-2\.parquet: row {WRONG + 1} \(row group 0\): column"
CASES = {
    "a missing column": Case(r"day-2\.parquet has no column 'price'", lambda table: table.drop_columns("price")),
    "an id that is null": Case(rf"{PLACE} 'user': expected a value .*found None", with_row("user", None), starts=True),
    "a list longer than its maximum": Case(
        rf"{PLACE} 'tags': expected at most 3 values .*found \['a', 'b', 'c', 'd'\]",
        with_row("tags", list("abcd")),
        starts=True,
    ),
    "a type that nobody has seen": Case(
        r"day-2\.parquet: column 'user' is of type struct<name: string>, ids are",
        lambda table: table.set_column(0, "user", pa.array([{"name": "ada"}] * ROWS)),
    ),
    "a label outside its range": Case(
        rf"{PLACE} 'clicked': expected the label 0 or 1 .*, found 7", with_row("clicked", 7), starts=True
    ),
    "a range of labels that the loss does not take": Case(
        r"labels in 0\.\.5 \(label-range of the schema\) are not all taken by the loss bce", options={"schema": "range"}
    ),
    "a schema that changes between days": Case(
        r"column 'user' is of another type in .*day-3\.parquet and .*day-2\.parquet: int64 and string",
        third=with_type("user", pa.int64()),
    ),
    "outputs of a wrong shape": Case(
        r"'tests.support.price_model:TwoLogits' makes torch.float32 \[2, 2\] of two samples with 1 labels",
        options={"model": "tests.support.price_model:TwoLogits"},
    ),
    "a loss that is NaN by a sample": Case(
        rf"the loss of iteration 10 is nan: .*sample {WRONG} of the stream, and all parameters and rows are finite",
        lambda table: with_row("clicked", 1)(with_row("price", 0.0)(table)),
        starts=True,
    ),
    "a loss that is NaN by a parameter": Case(
        r"the loss of iteration 9 is nan: .* not finite are parameter output\.weight",
        options={"dense_learning_rate": 1e39},
        starts=True,
    ),
}


@dataclass(frozen=True)
class Trained:
    """A table that was trained on the first day.

    Attributes:
        options: of runs that go on with it; `data` is missing.
        kept: folder of its checkpoints.
        expected: folder of the model that a good second day makes of it.
    """

    options: RunOptions
    kept: Path
    expected: Path


def go_on(options: RunOptions, kept: Path, out: Path | None) -> None:
    training.run(options, store="memory", shards=1, out=out, checkpoint_dir=kept, continue_from="clicks")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("good")
    for day in (1, 2):
        pyarrow.parquet.write_table(events(day), folder / f"day-{day}.parquet")
    (folder / "schema").write_text(SCHEMA)
    (folder / "range").write_text(f"{SCHEMA}label-range = [0, 5]\n")
    options = RunOptions(
        data=str(folder / "day-1.parquet"), schema=folder / "schema", model="tests.support.price_model:PerPrice",
        workers=2, links="1g", batch=16, dim=4, cache_rows=200, learning_rate=0.01, seed=3,
    )  # fmt: skip
    kept = folder / "kept"
    training.run(options, store="memory", shards=1, out=None, checkpoint_dir=kept, table="clicks")
    shutil.copytree(kept, folder / "copy")
    options = replace(options, data=str(folder / "day-2.parquet"))
    go_on(options, folder / "copy", folder / "expected")
    return Trained(options, kept, folder / "expected")


def content(folder: Path) -> dict[Path, str]:
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_by_name_and_the_table_is_unharmed(name: str, trained: Trained, tmp_path: Path) -> None:
    case, kept = CASES[name], tmp_path / "kept"
    shutil.copytree(trained.kept, kept)
    pyarrow.parquet.write_table(case.second(events(2)), tmp_path / "day-2.parquet")
    if case.third is not None:
        pyarrow.parquet.write_table(case.third(events(3)), tmp_path / "day-3.parquet")
    schema = trained.options.schema.with_name(case.options.get("schema", "schema"))
    options = replace(trained.options, data=str(tmp_path / "day-*.parquet"), **case.options | {"schema": schema})
    before = content(kept)
    with pytest.raises((InvalidArgument, FailedPrecondition)) as refused:
        go_on(options, kept, None)
    assert re.search(case.message, str(refused.value)), str(refused.value)
    if not case.starts:
        assert content(kept) == before
        return
    go_on(trained.options, kept, tmp_path / "out")
    assert_same_model(tmp_path / "out", trained.expected)
