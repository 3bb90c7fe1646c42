"""Files that are opened at a place give the samples from there on, and count skipped rows as before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import esd
from esd.data.epochs import Epochs
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.sources import MAX_POSITION, SourcePosition
from tests.support.clicks import SCHEMA, clicks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of two formats, small and large ones, two of them with rows that are none."""
    for number, rows in enumerate((5, 3, 40, 2, 30)):
        frame = pd.DataFrame(clicks(rows, seed=number))
        if number % 2:
            frame.to_parquet(tmp_path / f"part-{number}.parquet", row_group_size=7)
        else:
            frame.to_csv(tmp_path / f"part-{number}.csv", index=False)
    text = (tmp_path / "part-2.csv").read_text().splitlines()
    text[9:9] = ["1,2", "1,2,3,4,5,6"]  # ragged
    text[20] = "1,i2,dear,1"
    text[-1] = "1"
    (tmp_path / "part-2.csv").write_text("\n".join(text) + "\n")
    return tmp_path


@pytest.mark.parametrize("batch_size", [1, 7, 16, 1024])
def test_reading_goes_on_at_every_batch(folder: Path, batch_size: int) -> None:
    stream = esd.read(folder, SCHEMA, batch_size=batch_size, skip_bad=4)
    batches = list(stream)
    whole = SampleBatch.concatenate(batches)
    assert (len(whole), stream.skipped) == (78, 4)
    before = 0
    for batch in batches:
        rest = SampleBatch.concatenate(list(stream.open(batch.source)))
        assert stream.skipped == 4
        np.testing.assert_array_equal(rest.ids, whole[before:].ids)
        inside = next(stream.open(batch[len(batch) // 2 :].source))
        np.testing.assert_array_equal(inside.ids[:2], whole[before + len(batch) // 2 :].ids[:2])
        before += len(batch)


def test_files_before_a_place_are_not_read(folder: Path) -> None:
    stream = esd.read(folder, SCHEMA, batch_size=2, skip_bad=4)
    last = list(stream)[-1]
    for file in sorted(folder.iterdir())[:-1]:
        file.unlink()
    np.testing.assert_array_equal(next(stream.open(last.source)).ids, last.ids)


def test_a_place_of_something_else_is_refused(folder: Path) -> None:
    stream = esd.read(folder, SCHEMA, skip_bad=4)
    with pytest.raises(InvalidArgument, match="position '1732600000000-0:0' was written by another kind of source"):
        stream.open(SourcePosition("1732600000000-0:0"))
    with pytest.raises(FailedPrecondition, match=r"ends 922 samples before 0:0:0 \+ 1,000 samples"):
        list(stream.open(SourcePosition("0:0:0", 1000)))
    with pytest.raises(InvalidArgument, match="has 65,537 characters, at most 65536"):
        SourcePosition("x" * (MAX_POSITION + 1))
    with pytest.raises(InvalidArgument, match="a sample is -1 behind its position"):
        SourcePosition("0:0:0", -1)


def test_samples_in_another_order_have_no_places(folder: Path) -> None:
    stream = esd.read(folder, SCHEMA, skip_bad=4)
    assert next(iter(Epochs(stream, epochs=2, shuffle=0, seed=0, batch_size=9))).source is None
    batch = next(iter(stream))
    assert batch[3:].source == SourcePosition("0:0:0", 3)
    assert batch[np.array([0, 1])].source is None
    assert batch[::2].source is None
