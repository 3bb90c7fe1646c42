"""The column of sites: read with the sites of workers, ignored without, and refused by name where it does not fit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from esd.data.schema import Schema
from esd.data.tables import FrameDataset, TableDataset
from esd.run.options import RunOptions
from esd.run.stream import training_stream
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sites import site_key

SCHEMA = Schema(label="clicked", ids=("user",), site="shop")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text("clicked,user,shop\n1,a,12\n0,b,7\n1,c,12\n")
    return path


def test_samples_have_the_sites_of_their_rows(visits: Path) -> None:
    (batch,) = TableDataset(str(visits), SCHEMA, 10).at_sites(["7", "12", "12"])
    assert batch.sites is not None
    assert batch.sites.tolist() == [site_key("12"), site_key("7"), site_key("12")]
    assert batch.fields == 1
    frame = pa.table({"clicked": [1, 0], "user": ["a", "b"], "shop": [12, 7]})
    (of_frame,) = FrameDataset(frame, SCHEMA, 10).at_sites(["7", "12"])
    assert of_frame.sites is not None
    assert of_frame.sites.tolist() == batch.sites[:2].tolist()


def test_without_workers_sites_they_have_none(visits: Path) -> None:
    (batch,) = TableDataset(str(visits), SCHEMA, 10)
    assert batch.sites is None
    (scored,) = FrameDataset(pa.table({"user": ["a"]}), SCHEMA, 10, labelled=False)
    assert scored.fields == 1


def test_a_row_of_a_site_without_workers_is_refused_with_its_place(visits: Path) -> None:
    data = TableDataset(str(visits), SCHEMA, 10).at_sites(["12"])
    with pytest.raises(InvalidArgument, match=r"visits.csv: row 2: column 'shop': .*'12' \(--sites\), found '7'"):
        list(data)
    (batch,) = TableDataset(str(visits), SCHEMA, 10, skip_bad=1).at_sites(["12"])
    assert len(batch) == 2


def test_a_schema_without_sites_has_none_for_workers(visits: Path) -> None:
    with pytest.raises(InvalidArgument, match="the schema names no column `site`"):
        TableDataset(str(visits), Schema(label="clicked", ids=("user",)), 10).at_sites(["12"])


def test_a_run_with_a_column_of_sites_needs_workers_with_sites(visits: Path) -> None:
    with pytest.raises(InvalidArgument, match="stay at the site in column 'shop', and workers have no sites"):
        training_stream(RunOptions(data=str(visits), schema=SCHEMA, workers=2))


def test_a_column_of_fractions_is_no_site() -> None:
    frame = pa.table({"clicked": [1], "user": ["a"], "shop": [0.5]})
    with pytest.raises(InvalidArgument, match="a site is a text or a whole number"):
        FrameDataset(frame, SCHEMA, 10)
