"""Files of data in an object store: a real server that speaks S3, and every format that is read from a disk."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import esd
from esd.cli.main import app
from esd.data.opening import open_data
from esd.data.remote import remote_files
from tests.support.object_store import S3Server, new_bucket, s3_client

ROWS = 30
SCHEMA = esd.Schema(label="y", ids=("user", "item", "day"), dense=("hour",))
CRITEO = b"".join(b"\t".join([b"%d" % (at % 2), *[b"%d" % at] * 13, *[b"c%d" % at] * 26]) + b"\n" for at in range(20))


@pytest.fixture
def bucket(shared_s3: S3Server) -> str:
    """An empty bucket."""
    return new_bucket()


def visits(seed: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    names = [f"user {number}" for number in draw.integers(0, 9, ROWS)]
    return pd.DataFrame(
        {"y": draw.integers(0, 2, ROWS), "user": names, "item": draw.integers(0, 7, ROWS), "hour": draw.random(ROWS)}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of each format that tables have, as Spark leaves it."""
    for day in (1, 2, 10, 11):
        (tmp_path / f"day={day}").mkdir()
    visits(1).to_parquet(tmp_path / "day=1" / "part.parquet")
    visits(2).to_csv(tmp_path / "day=2" / "part.csv", index=False)
    (tmp_path / "day=10" / "part.csv.gz").write_bytes(gzip.compress(visits(3).to_csv(index=False).encode()))
    visits(4).to_feather(tmp_path / "day=11" / "part.arrow")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "part.csv").write_text("half a fi")
    (tmp_path / "day=1" / "_SUCCESS").touch()
    (tmp_path / "notes.txt").write_text("of nobody's concern")
    return tmp_path


def upload(bucket: str, file: Path, name: str) -> None:
    s3_client().put_object(Bucket=bucket, Key=name, Body=file.read_bytes())


def test_a_folder_in_a_store_is_the_data_set_of_its_copy_here(bucket: str, folder: Path) -> None:
    for file in folder.rglob("*.*"):
        upload(bucket, file, f"of/{file.relative_to(folder).as_posix()}")
    for name in ("day=1/_SUCCESS", "_temporary/part.csv"):
        upload(bucket, folder / name, f"of/{name}")
    here = esd.read(folder, SCHEMA)
    for address in (f"s3://{bucket}/of", f"s3://{bucket}", f"s3://{bucket}/of/day=*", f"s3://{bucket}/**/day=*/part.*"):
        there = esd.read(address, SCHEMA)
        assert there.samples == here.samples
        assert there.fingerprint == here.fingerprint
        for found, expected in zip(there, here, strict=True):
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_array_equal(found.dense, expected.dense)
    two = esd.read(f"s3://{bucket}/of/day=1/part.parquet, s3://{bucket}/of/day=??", SCHEMA)
    assert sum(map(len, two)) == 3 * ROWS


def test_other_readers_read_from_a_store(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "day_0.gz").write_bytes(gzip.compress(CRITEO))
    upload(bucket, tmp_path / "day_0.gz", "day_0.gz")
    here, there = (open_data(f"criteo:{where}/day_?.gz", 64, seed=0) for where in (tmp_path, f"s3://{bucket}"))
    assert there.fingerprint == here.fingerprint
    np.testing.assert_array_equal(next(iter(there)).ids, next(iter(here)).ids)


def test_a_schema_is_proposed_for_files_of_a_store(bucket: str, folder: Path) -> None:
    upload(bucket, folder / "day=1" / "part.parquet", "day=1/part.parquet")
    proposed = [
        CliRunner().invoke(app, ["data", "inspect", f"{where}/part.parquet"])
        for where in (f"s3://{bucket}/day=1", folder / "day=1")
    ]
    assert [each.exit_code for each in proposed] == [0, 0], proposed[0].output
    assert proposed[0].stdout == proposed[1].stdout


def test_a_file_that_is_replaced_between_two_readings_is_refused(bucket: str, folder: Path) -> None:
    for seed in (1, 2):
        visits(seed).to_csv(folder / f"{seed}.csv", index=False)
    upload(bucket, folder / "1.csv", "part.csv")
    opened = esd.read(f"s3://{bucket}/part.csv", esd.Schema(label="y", ids=("user", "item")))
    assert opened.fingerprint
    upload(bucket, folder / "2.csv", "part.csv")
    with pytest.raises(esd.errors.InvalidArgument, match=rf"s3://{bucket}/part.csv has changed since this run began"):
        list(opened)
    s3_client().delete_object(Bucket=bucket, Key="part.csv")
    with pytest.raises(esd.errors.InvalidArgument, match=rf"s3://{bucket}/part.csv .*is not there any more"):
        list(opened)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://BUCKET/none.csv", "does not exist"),
        ("s3://nobodys/visits", "does not exist"),
        ("s3://BUCKET/*.zip", "does not exist"),
        ("s3://BUCKET/of", "has no file that ends in"),
        ("s3://BUCKET/of/notes.txt", "must end in one of"),
        ("https://visits/of.csv", "are remote: of remote files, s3://BUCKET/PATH and gs://BUCKET/PATH are read"),
    ],
)
def test_what_cannot_be_read_is_named(bucket: str, folder: Path, address: str, message: str) -> None:
    upload(bucket, folder / "notes.txt", "of/notes.txt")
    with pytest.raises(esd.errors.InvalidArgument, match=message):
        esd.read(address.replace("BUCKET/", f"{bucket}/"), SCHEMA)


def test_a_store_that_nobody_runs_is_given_up(monkeypatch: pytest.MonkeyPatch, bucket: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(esd.errors.InvalidArgument, match=rf"'s3://{bucket}/of' cannot be found: .*Could not connect"):
        esd.read(f"s3://{bucket}/of", SCHEMA)


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch, bucket: str, name: str) -> None:
    s3_client().put_object(Bucket=bucket, Key="a.csv", Body=b"y\n")
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv(name, "eu-west-1")
    ((file, _),) = remote_files(f"s3://{bucket}/a.csv")
    assert file.system.region == "eu-west-1"
