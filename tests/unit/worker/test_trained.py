"""A file of a trained model is enough to use it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

import esd
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument, NotFound
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.ids import in_table
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.wire.trained_models import describe_model, job_of_model
from esd.worker.models import build_model
from tests.support.reference import initial_rows

FEATURES = (Feature("user"), Feature("seen", table=1, pooling=Pooling.SUM, max_length=5), Feature("item", table=1))
TABLES = (TableSpec("users", 4, OptimizerSpec(), 7, 0.1), TableSpec("items", 3, OptimizerSpec(), 8, 0.1))


@pytest.fixture
def job(make_job):
    return replace(make_job(model="mmoe"), tables=TABLES, features=FEATURES, labels=("clicked", "bought"))


def test_what_it_says_is_what_the_model_is_and_nothing_else(job):
    again = job_of_model(describe_model(job))
    for part in ("name", "features", "labels", "dense_features", "tables", "model", "seed"):
        assert getattr(again, part) == getattr(job, part)
    other = replace(job, workers=2, workloads=(4, 4), parameter_servers=("elsewhere:1",), mechanism="laia")
    assert describe_model(other) == describe_model(job)


@pytest.mark.parametrize("ascending", [True, False])
def test_samples_of_several_tables_are_scored_with_trained_and_initial_rows(job, tmp_path, ascending):
    rng = np.random.default_rng(5)
    model = build_model(job)
    ids = [np.sort(in_table(rng.integers(0, 2**40, 6).astype(np.uint64), table)) for table in range(2)]
    rows = [rng.normal(size=(6, table.dimension)).astype(np.float32) for table in TABLES]
    arrays = {f"dense/{name}": values.numpy() for name, values in model.state_dict().items()}
    order = np.arange(6) if ascending else np.array([3, 0, 5, 1, 4, 2])
    for table, known, values in zip(TABLES, ids, rows, strict=True):
        arrays |= {f"{table.name}/ids": known[order], f"{table.name}/rows": values[order]}
    np.savez(tmp_path / "model.npz", model=np.array(describe_model(job)), **arrays)

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
    trained = esd.TrainedModel.load(tmp_path / "model.npz")
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
    arrays = {f"dense/{name}": values.numpy() for name, values in build_model(job).state_dict().items()}
    nothing = {"ids": np.zeros(0, np.uint64), "rows": np.zeros((0, 4), np.float32)}
    np.savez(tmp_path / "model.npz", model=np.array(describe_model(job)), **arrays, **nothing)
    model = esd.TrainedModel.load(tmp_path / "model.npz")
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


def test_what_is_no_file_of_a_model_is_refused(job, tmp_path):
    np.savez(tmp_path / "old.npz", ids=np.zeros(0, np.uint64))
    with pytest.raises(InvalidArgument, match=r"old.npz does not name its model"):
        esd.TrainedModel.load(tmp_path / "old.npz")
    np.savez(tmp_path / "other.npz", model=np.array(describe_model(job)), **{"dense/bias": np.zeros(1)})
    with pytest.raises(InvalidArgument, match="are not the arrays of model 'mmoe'"):
        esd.TrainedModel.load(tmp_path / "other.npz")
    with pytest.raises(NotFound, match=r"none.npz does not exist"):
        esd.TrainedModel.load(tmp_path / "none.npz")
    with pytest.raises(InvalidArgument, match="this describes no model"):
        job_of_model("wdl")


def test_a_folder_is_no_model_file(tmp_path):
    with pytest.raises(InvalidArgument, match=f"model file {tmp_path} cannot be read: Is a directory"):
        esd.TrainedModel.load(tmp_path)


def test_a_damaged_file_is_named(job, tmp_path):
    np.savez(tmp_path / "model.npz", model=np.array(describe_model(job)), ids=np.arange(1000))
    whole = (tmp_path / "model.npz").read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (b"", b"no model", whole[: len(whole) // 2], bytes(flipped)):
        (tmp_path / "bad.npz").write_bytes(damaged)
        with pytest.raises(InvalidArgument, match=r"bad.npz is damaged, or is not a model.npz"):
            esd.TrainedModel.load(tmp_path / "bad.npz")
