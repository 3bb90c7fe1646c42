"""Many small files are looked at once, and their samples come in whole batches, as from one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import esd
from esd.data.tables import TableDataset
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument

SCHEMA = esd.Schema(label="y", ids=["item", {"column": "seen", "max": 4}], dense=["price"])
FILES, ROWS = 200, 3


def rows_of(file: int) -> dict[str, list[object]]:
    numbers = range(file * ROWS, (file + 1) * ROWS)
    return {
        "item": [f"i{each % 50}" for each in numbers],
        "seen": [[each, each + 1][: each % 3] for each in numbers],
        "price": [each / 7 for each in numbers],
        "y": [each % 2 for each in numbers],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    for file in range(FILES):
        pyarrow.parquet.write_table(pa.table(rows_of(file)), tmp_path / "parts" / f"part-{file}.parquet")
    return tmp_path / "parts"


def read(path: Path, batch_size: int = 64, skip_bad: int = 0) -> list[SampleBatch]:
    return list(TableDataset(str(path), SCHEMA, batch_size, skip_bad))


def same(found: SampleBatch, expected: SampleBatch) -> None:
    for name in ("ids", "lengths", "dense", "labels"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_small_files_have_the_samples_of_one_file_in_whole_batches(folder: Path, tmp_path: Path) -> None:
    whole = pa.concat_tables([pa.table(rows_of(file)) for file in range(FILES)])
    pyarrow.parquet.write_table(whole, tmp_path / "whole.parquet")
    batches = read(folder)
    assert [len(each) for each in batches[:-1]] == [63] * (len(batches) - 1)  # 21 files each
    same(SampleBatch.concatenate(batches), SampleBatch.concatenate(read(tmp_path / "whole.parquet")))


def test_their_number_is_known_from_the_one_look_at_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = TableDataset(str(folder), SCHEMA, 64)
    monkeypatch.setattr(pyarrow.parquet, "read_metadata", lambda *_: pytest.fail("a file is looked at again"))
    assert dataset.samples == FILES * ROWS


def test_a_mistake_among_them_names_its_file_and_row(folder: Path) -> None:
    wrong = rows_of(30)
    wrong["y"][1] = None
    pyarrow.parquet.write_table(pa.table(wrong), folder / "part-30.parquet")
    taken = 0
    with pytest.raises(InvalidArgument, match=r"part-30.parquet: row 2 .*column 'y'"):  # noqa: PT012 - of the iteration
        for batch in TableDataset(str(folder), SCHEMA, 64):
            taken += len(batch)
    assert taken == 30 * ROWS, "the samples before it"
    assert sum(map(len, read(folder, skip_bad=1))) == FILES * ROWS - 1


def test_files_of_other_types_are_not_joined(folder: Path) -> None:
    expected = SampleBatch.concatenate(read(folder))
    for file in range(0, FILES, 2):
        table = pa.table(rows_of(file))
        narrow = table.set_column(table.schema.get_field_index("y"), "y", table["y"].cast(pa.int8()))
        pyarrow.parquet.write_table(narrow, folder / f"part-{file}.parquet")
    same(SampleBatch.concatenate(read(folder)), expected)
