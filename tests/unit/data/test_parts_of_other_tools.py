"""One value has one id, however the tools write it, and parts are read as these tools write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import esd
from esd.data import open_data
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from tests.support.event_tables import write

SCHEMA = esd.Schema("y", ("u",))


def ids(source: object, schema: esd.Schema = SCHEMA) -> list[int]:
    return SampleBatch.concatenate(list(esd.read(source, schema))).ids.tolist()


def frame(values: object, kind: pa.DataType | None = None) -> pa.Table:
    column = pa.array(values, kind)
    return pa.table({"y": [row % 2 for row in range(len(column))], "u": column})


def test_a_truth_value_has_one_id(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("y,u\n0,True\n1,False\n")  # as pandas writes it
    (tmp_path / "f.csv").write_text("y,u\n0,true\n1,false\n")
    expected = ids(frame([True, False]))
    assert ids(tmp_path / "e.csv") == ids(tmp_path / "f.csv") == ids(frame(["True", "False"])) == expected
    missing = esd.Schema("y", ("u",), missing={"u": "True"})
    assert ids(frame([None, False]), missing) == expected


def test_whole_floats_are_whole_numbers() -> None:
    """pandas makes whole numbers floats where some are absent."""
    expected = ids(frame([7, -1, 2**40]))
    assert ids(frame([7.0, -1.0, 2.0**40])) == expected
    absent = esd.Schema("y", ("u",), missing={"u": "7"})
    assert ids(frame([None, -1.0, 2.0**40]), absent) == ids(frame([float("nan"), -1.0, 2.0**40]), absent) == expected
    lists = esd.Schema("y", (esd.IdList("u", max=3),))
    assert ids(frame([[7.0], [-1.0, 3.0]]), lists) == ids(frame([[7], [-1, 3]]), lists)
    for wrong in (0.5, float("inf"), 2.0**53 + 2):
        with pytest.raises(InvalidArgument, match="row 2: column 'u': expected a whole number"):
            ids(frame([1.0, wrong]))
        with pytest.raises(InvalidArgument, match=r"row 1: column 'u': expected a whole number .* place of the list"):
            ids(frame([[1.0, wrong]]), lists)


def test_whole_numbers_in_one_part_and_floats_in_the_other_are_refused_in_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,u\n1,12\n0,13\n")
    (tmp_path / "b.csv").write_text("y,u\n1,12.0\n0,13.0\n")
    with pytest.raises(InvalidArgument, match=r"column 'u' has whole numbers, such as 12, in one of .*, and 12\.0"):
        esd.read(tmp_path, SCHEMA)
    write(frame([12.0, 13.0]), tmp_path / "b.parquet")
    (tmp_path / "b.csv").unlink()
    assert ids(tmp_path)[:2] == ids(tmp_path)[2:]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int32(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.uint8(), pa.float32()),
        (pa.string(), pa.large_string()),
        (pa.string(), pa.dictionary(pa.int16(), pa.string())),
    ],
)
def test_parts_may_have_other_types_of_equal_ids(tmp_path: Path, one: pa.DataType, other: pa.DataType) -> None:
    values = ["a", "b"] if pa.types.is_string(one) else [1, 2]
    write(frame(values, one), tmp_path / "1.arrow")
    write(frame(values, other), tmp_path / "2.arrow")
    found = ids(tmp_path)
    assert found[:2] == found[2:]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_part_whose_column_has_no_value_is_read_with_the_stand_in(tmp_path: Path, ending: str) -> None:
    schema = esd.Schema("y", ("u", esd.IdList("l", 2)), dense=("n",), missing={"n": 5, "u": ""})
    full = pa.table({"y": [1, 0], "u": ["a", "b"], "l": [["x"], []], "n": [1.0, 2.0]})
    nulls = {name: pa.nulls(2) for name in ("u", "l", "n")}
    write(full, tmp_path / f"1.{ending}")
    write(pa.table({"y": [1, 0], **nulls}), tmp_path / f"2.{ending}")
    samples = SampleBatch.concatenate(list(esd.read(tmp_path, schema)))
    assert samples.dense[:, 0].tolist() == [1, 2, 5, 5]
    with pytest.raises(InvalidArgument, match="column 'n' is of type null, which has no value: expected a value"):
        esd.read(tmp_path, esd.Schema("y", ("u",), dense=("n",), missing={"u": ""}))


@pytest.mark.parametrize("reader", ["taobao", "movielens", "criteo"])
def test_a_byte_order_mark_is_no_part_of_the_first_value(tmp_path: Path, reader: str) -> None:
    line = {
        "taobao": "7,1,2,pv,100\n7,2,2,pv,200\n",
        "movielens": "userId,movieId,rating,timestamp\n1,2,5,4\n",
        "criteo": "1" + "\t5" * 13 + "\t05db9164" * 26 + "\n",
    }[reader]
    (tmp_path / "plain").write_bytes(line.encode())
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbf" + line.encode())
    plain, marked = (
        SampleBatch.concatenate(list(open_data(f"{reader}:{tmp_path}/{name}", 100, seed=0)))
        for name in ("plain", "marked")
    )
    np.testing.assert_array_equal(plain.ids, marked.ids)


def test_lists_as_python_and_json_write_them(tmp_path: Path) -> None:
    lists = esd.Schema("y", (esd.IdList("u", max=3, separator=","),))
    (tmp_path / "e.csv").write_text('y,u\n1,"[1, 2, 3]"\n0,[]\n1,"[\'1\', \'2\']"\n0,"[""1""]"\n1,"1,2"\n')
    samples = SampleBatch.concatenate(list(esd.read(tmp_path / "e.csv", lists)))
    assert samples.lengths is not None
    assert samples.lengths[:, 0].tolist() == [3, 0, 2, 1, 2]
    one, two, three = samples.ids[:3].tolist()
    assert samples.ids.tolist() == [one, two, three, one, two, one, one, two]
