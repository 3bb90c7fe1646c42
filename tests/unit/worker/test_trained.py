"""A trained model's folder is enough to use it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

import esd
from esd.model.files import new_folder
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, NotFound
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.ids import in_table
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.wire.trained_models import describe_model, job_of_model
from esd.worker.models import build_model
from tests.support.models import model_arrays, save_model
from tests.support.reference import initial_rows

FEATURES = (Feature("user"), Feature("seen", table=1, pooling=Pooling.SUM, max_length=5), Feature("item", table=1))
TABLES = (TableSpec("users", 4, OptimizerSpec(), 7, 0.1), TableSpec("items", 3, OptimizerSpec(), 8, 0.1))


def arrays_of(model):
    return {name: values.numpy() for name, values in model.state_dict().items()}


@pytest.fixture
def job(make_job):
    return replace(make_job(model="mmoe"), tables=TABLES, features=FEATURES, labels=("clicked", "bought"))


def test_what_it_says_is_what_the_model_is_and_nothing_else(job):
    again = job_of_model(describe_model(job))
    for part in ("name", "features", "labels", "dense_features", "tables", "model", "seed"):
        assert getattr(again, part) == getattr(job, part)
    other = replace(job, workers=2, workloads=(4, 4), parameter_servers=("elsewhere:1",), mechanism="laia")
    assert describe_model(other) == describe_model(job)


def test_samples_of_several_tables_are_scored_with_trained_and_initial_rows(job, tmp_path):
    rng = np.random.default_rng(5)
    model = build_model(job)
    ids = [np.sort(in_table(rng.integers(0, 2**40, 6).astype(np.uint64), table)) for table in range(2)]
    rows = [rng.normal(size=(6, table.dimension)).astype(np.float32) for table in TABLES]
    order = np.array([3, 0, 5, 1, 4, 2])
    tables = {
        table.name: (known[order], values[order], np.ones(6, np.int64))
        for table, known, values in zip(TABLES, ids, rows, strict=True)
    }
    save_model(tmp_path / "model", job, arrays_of(model), **tables)

    new_user, new_item = (in_table(np.array([9], np.uint64), table) for table in range(2))
    batch = SampleBatch(
        ids=np.concatenate([ids[0][:1], ids[1][:2], ids[1][3:4], new_user, new_item]),
        dense=rng.normal(size=(2, 3)).astype(np.float32),
        labels=np.zeros((2, 2), np.float32),
        lengths=np.array([[1, 2, 1], [1, 0, 1]], np.uint32),
    )
    embeddings = {
        "user": np.stack([rows[0][0], initial_rows(TABLES[0], new_user)[0]]),
        "seen": np.stack([rows[1][0] + rows[1][1], np.zeros(3, np.float32)]),
        "item": np.stack([rows[1][3], initial_rows(TABLES[1], new_item)[0]]),
    }
    expected = model({name: torch.from_numpy(each) for name, each in embeddings.items()}, torch.from_numpy(batch.dense))
    trained = esd.load(tmp_path / "model")
    found = trained.scores(batch)
    np.testing.assert_allclose(found, expected.detach().sigmoid().numpy(), rtol=1e-5)
    with pytest.raises(InvalidArgument, match=r"a list cannot be scored, only one batch of samples"):
        trained.scores([batch])


def test_samples_are_scored_by_the_names_of_their_columns(make_job, tmp_path):
    schema = esd.Schema("clicked", ("user", "item"), dense=("price", "age"), log=("price",), missing={"age": 30})
    columns = schema.sample_columns
    job = replace(
        make_job(model="wdl", dense_features=2),
        tables=TABLES[:1], features=columns.features, dense_names=columns.dense, rules=columns.rules,
    )  # fmt: skip
    save_model(tmp_path / "model", job, arrays_of(build_model(job)))
    model = esd.load(tmp_path / "model")
    frame = pa.table({"user": ["a", "b"], "item": [1, 2], "price": [9.0, 1.0], "age": [20.0, 50.0]})

    def scores(schema):
        (batch,) = esd.read(frame, schema, labelled=False)
        return model.scores(batch)

    expected = scores(schema)
    shuffled = replace(schema, ids=("item", "user"), dense=("age", "price"), label="other")
    np.testing.assert_array_equal(scores(shuffled), expected)
    with pytest.raises(InvalidArgument, match=r"dense features of the samples lack 'ln\(1 \+ price\)'"):
        scores(replace(schema, log=()))
    with pytest.raises(InvalidArgument, match="missing age is 31 in the schema of the samples"):
        scores(replace(schema, missing={"age": 31}))
    with pytest.raises(InvalidArgument, match="'item' of the samples has a hash key 'things'"):
        scores(replace(schema, ids=("user", esd.Id("item", table="things"))))


def test_what_is_no_folder_of_a_model_is_refused(job, tmp_path):
    with pytest.raises(InvalidArgument, match=r"model.npz is a file of an earlier version.*a model is a folder now"):
        esd.load(tmp_path / "model.npz")
    with pytest.raises(NotFound, match=r"model folder .*none does not exist"):
        esd.load(tmp_path / "none")
    with pytest.raises(InvalidArgument, match=r"has no config\.json and SHA256SUMS, so it is no folder of a model"):
        esd.load(tmp_path)
    save_model(tmp_path / "other", job, {"bias": np.zeros(1, np.float32)})
    with pytest.raises(FailedPrecondition, match="stored parameters are not of model mmoe"):
        esd.load(tmp_path / "other").module()
    with pytest.raises(InvalidArgument, match="this describes no model"):
        job_of_model("wdl")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidArgument, match="file is a file, a model is a folder"):
        esd.load(tmp_path / "file")


def test_a_folder_of_another_format_names_its_version(job, tmp_path):
    save_model(tmp_path / "model", job, arrays_of(build_model(job)))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    newer = config | {"format": 2, "versions": {"esd": "9.1"}}
    with new_folder(tmp_path / "newer") as writer:
        writer.write("config.json", json.dumps(newer).encode())
    with pytest.raises(InvalidArgument, match=r"has format 2, this version reads 1: load it with version 9\.1"):
        esd.load(tmp_path / "newer")


def test_a_damaged_file_is_named(job, tmp_path):
    save_model(tmp_path / "model", job, arrays_of(build_model(job)))
    for name in ("config.json", "dense.safetensors"):
        whole = (tmp_path / "model" / name).read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], bytes([whole[0] ^ 1]) + whole[1:]):
            (tmp_path / "model" / name).write_bytes(damaged)
            with pytest.raises(InvalidArgument, match=rf"{name} is damaged: its digest is not the one in SHA256SUMS"):
                esd.load(tmp_path / "model")
        (tmp_path / "model" / name).write_bytes(whole)
    rows = tmp_path / "model" / "tables" / "users" / "rows.npy"
    rows.write_bytes(rows.read_bytes()[:20])
    with pytest.raises(InvalidArgument, match=r"rows.npy is damaged"):
        esd.load(tmp_path / "model")
    rows.unlink()
    with pytest.raises(InvalidArgument, match=r"rows.npy cannot be read: No such file"):
        esd.load(tmp_path / "model")


def test_the_digests_are_those_that_sha256sum_checks(job, tmp_path):
    save_model(tmp_path / "model", job, arrays_of(build_model(job)))
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "model", capture_output=True, check=True
    )
    assert len(checked.stdout.splitlines()) == len(list((tmp_path / "model").rglob("*.*")))


def test_a_former_model_stays_until_the_new_one_is_whole(job, tmp_path):
    save_model(tmp_path / "model", job, arrays_of(build_model(job)))
    before = model_arrays(tmp_path / "model")

    def write_twice():
        with new_folder(tmp_path / "model") as writer:
            writer.write("config.json", b"{}")
            writer.write("config.json", b"{}")

    with pytest.raises(FileExistsError):
        write_twice()
    assert model_arrays(tmp_path / "model").keys() == before.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (tmp_path / "mine").mkdir()
    with pytest.raises(InvalidArgument, match="mine exists and is no folder of a model"), new_folder(tmp_path / "mine"):
        pass
