"""A site's values: written once, site by site, and referred to by the same samples only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from esd.cli.main import app
from esd.data.schema import Schema
from esd.data.site_values import ByReference, write_site_values
from esd.data.tables import TableDataset
from esd.run.options import RunOptions
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.references import keys_of, rows_of
from esd.services.runtime.site_values import SiteValues, folder_of_site

SCHEMA = Schema(label="clicked", ids=("user",), dense=("price",), site="shop")
SITES = ("north", "a/../b", "north")
ROWS = "1,a,2.5,north\n0,b,0.25,a/../b\n0,c,-1,north\n1,d,4,north\n"


def data(folder: Path, rows: str = ROWS, batch_size: int = 3) -> TableDataset:
    (folder / "visits.csv").write_text("clicked,user,price,shop\n" + rows)
    return TableDataset(str(folder / "visits.csv"), SCHEMA, batch_size)


@pytest.fixture
def values(tmp_path: Path) -> Path:
    assert write_site_values(data(tmp_path), SITES, tmp_path / "values") == {"north": 3, "a/../b": 1}
    return tmp_path / "values"


def test_each_site_has_its_own_samples_in_order_and_in_a_folder_of_its_name(values: Path) -> None:
    assert sorted(path.name for path in values.iterdir()) == ["a%2F%2E%2E%2Fb", "north"]
    north = SiteValues(values / "north")
    labels, dense = north.pick(np.array([2, 0]))
    assert (labels.tolist(), dense.tolist()) == ([[1], [1]], [[4], [2.5]])
    assert (len(north), north.site, north.columns.rules) == (3, "north", SCHEMA.rules)
    north.check_content()
    other = SiteValues(folder_of_site(values, "a/../b"))
    assert other.key != north.key
    assert [each.tolist() for each in other.pick(slice(0, 1))] == [[[0]], [[0.25]]]


def test_samples_have_references_in_place_of_their_values(tmp_path: Path, values: Path) -> None:
    read = ByReference(data(tmp_path).at_sites(SITES), values, SITES)
    batches = [*read, *read]  # every reading begins anew
    assert {(batch.labels.shape[1], batch.dense.shape[1]) for batch in batches} == {(0, 0)}
    assert all(batch.references is not None for batch in batches)
    north, other = (SiteValues(folder_of_site(values, site)).key for site in ("north", "a/../b"))
    references = np.concatenate([batch.references for batch in batches if batch.references is not None])
    assert keys_of(references).tolist() == [north, other, north, north] * 2
    assert rows_of(references).tolist() == [0, 0, 1, 2] * 2
    assert read.fingerprint == f"{data(tmp_path).fingerprint}; by reference"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (ROWS.replace("-1", "-2"), "sample 1 of site 'north' has another label or dense feature than .*values/north"),
        (ROWS.replace("1,d", "0,d"), "sample 2 of site 'north' has another label"),
        (ROWS + "0,e,1,north\n", r"site 'north' has more samples than .*\(key \w{6}, 3 samples\)"),
    ],
)
def test_other_samples_are_refused_by_their_number(tmp_path: Path, values: Path, rows: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        list(ByReference(data(tmp_path, rows).at_sites(SITES), values, SITES))


def test_a_submitter_needs_the_values_of_the_sites_that_it_submits(tmp_path: Path, values: Path) -> None:
    (values / "north").rename(values / "elsewhere")
    with pytest.raises(InvalidArgument, match="values has no values of site 'north'"):
        list(ByReference(data(tmp_path).at_sites(SITES), values, SITES))
    only = data(tmp_path, "0,b,0.25,a/../b\n").at_sites(SITES)
    assert [len(batch) for batch in ByReference(only, values, SITES)] == [1]
    with pytest.raises(InvalidArgument, match="values has no folder of a site"):
        ByReference(only, values, ["north"])


def test_data_of_ones_own_must_keep_to_the_sites(tmp_path: Path, values: Path) -> None:
    elsewhere = data(tmp_path).at_sites(SITES)
    with pytest.raises(InvalidArgument, match=r"a sample is of the site with the key [0-9]+, the sites are 'north'"):
        list(ByReference(elsewhere, values, ["north"]))
    with pytest.raises(InvalidArgument, match="samples have no sites, at which their labels could stay"):
        list(ByReference(data(tmp_path), values, SITES))


def test_other_columns_or_rules_are_refused(tmp_path: Path, values: Path) -> None:
    data(tmp_path)
    other = Schema(label="clicked", ids=("user",), dense=("price",), log=("price",), site="shop")
    read = TableDataset(str(tmp_path / "visits.csv"), other, 3).at_sites(SITES)
    with pytest.raises(InvalidArgument, match="has other columns or rules than the data"):
        ByReference(read, values, SITES)


def test_values_that_are_incomplete_or_changed_are_refused(values: Path) -> None:
    rows = values / "north" / "values.f32"
    content = rows.read_bytes()
    rows.write_bytes(content[:-1] + b"\1")
    with pytest.raises(FailedPrecondition, match=r"values.f32 has changed since it was written"):
        SiteValues(values / "north").check_content()
    rows.write_bytes(content[:-4])
    with pytest.raises(FailedPrecondition, match=r"values.f32 has 20 bytes, 3 samples need 24"):
        SiteValues(values / "north")
    rows.unlink()
    with pytest.raises(FailedPrecondition, match=r"values.f32: No such file"):
        SiteValues(values / "north")
    (values / "north" / "about.json").unlink()  # which is written last
    with pytest.raises(FailedPrecondition, match=r"has no values of a site.*: esd data site-values writes them"):
        SiteValues(values / "north")
    folder_of_site(values, "a/../b").rename(values / "north" / "moved")
    (values / "north" / "moved").rename(values / "south")
    with pytest.raises(FailedPrecondition, match=r"has the values of site 'a/../b', not of 'south'"):
        ByReference(data(values.parent).at_sites(SITES), values, ["south"])


def test_values_are_not_written_over_others(tmp_path: Path, values: Path) -> None:
    with pytest.raises(InvalidArgument, match="values has files already: name a new folder with --out"):
        write_site_values(data(tmp_path), SITES, values)


def test_a_site_without_samples_has_values_of_none(tmp_path: Path) -> None:
    assert write_site_values(data(tmp_path), (*SITES, "east"), tmp_path / "all")["east"] == 0
    labels, dense = SiteValues(tmp_path / "all" / "east").pick(np.empty(0, np.int64))
    assert (labels.shape, dense.shape) == ((0, 1), (0, 1))


def test_options_that_need_labels_here_are_refused(tmp_path: Path, values: Path) -> None:
    data(tmp_path)
    chosen = {"data": str(tmp_path / "visits.csv"), "schema": SCHEMA, "workers": 3, "site_values": values}
    with pytest.raises(InvalidArgument, match=r"--site-values is for samples that stay at sites.*give --sites"):
        RunOptions(**chosen).open(3)
    with pytest.raises(InvalidArgument, match=r"--holdout 0.5 needs the labels.*\(--evaluate\)"):
        RunOptions(**chosen, sites=",".join(SITES), holdout="0.5").open(3)
    endless = {"data": "synthetic:zipf", "workers": 3, "sites": ",".join(SITES), "site_values": values}
    with pytest.raises(
        InvalidArgument, match="has no last sample, and labels stay at sites where samples have numbers"
    ):
        RunOptions(**endless).open(3)


def test_the_command_writes_them(tmp_path: Path) -> None:
    data(tmp_path)
    schema = tmp_path / "visits.toml"
    schema.write_text('label = "clicked"\nids = ["user"]\ndense = ["price"]\nsite = "shop"\n')
    out = str(tmp_path / "written")
    arguments = ["data", "site-values", str(tmp_path / "visits.csv"), "--schema", str(schema), "--out", out]
    result = CliRunner().invoke(app, [*arguments, "--sites", "north,a/../b"])
    assert result.exit_code == 0, result.output
    assert f"{out}/north: 3 samples of site 'north'" in result.output.replace("\n", "")
    assert len(SiteValues(tmp_path / "written" / "north")) == 3
    refused = CliRunner().invoke(app, [*arguments[:-1], str(tmp_path / "more"), "--sites", "north"])
    assert isinstance(refused.exception, InvalidArgument)
