"""Small models in folders, made without training, and servers of them as processes and in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from esd.data.schema import IdList, Schema
from esd.model.files import CONFIG, FORMAT, SCHEMA, new_folder
from esd.model.schema_text import schema_text
from esd.model.sorted_rows import SortedRows
from esd.model.table import write_table
from esd.protos import inference_pb2
from esd.services.domain.features import Feature, single_ids
from esd.services.domain.jobs import JobSpec
from esd.services.domain.rows import RowBlock
from esd.services.wire.trained_models import ONNX, describe_model, input_names
from esd.serving.app import Serving, serve_model
from esd.serving.settings import ModelSettings
from tests.support.service_process import serving
from tests.support.simple_clients import job_with

IDS = np.arange(100, dtype=np.uint64)  # trained
SCHEMA_OF_SHOP = Schema(
    label="clicked", ids=("user", IdList("tags", max=3, pool="sum")), dense=("price",), missing={"price": 1.5}
)


def job_of_ids(features: tuple[Feature, ...] = single_ids(("user", "item")), **changes: Any) -> JobSpec:
    """A job of one label and two dense features."""
    return job_with(**{"features": features, "dense_features": 2, "labels": ("clicked",), **changes})


def job_of_shop() -> JobSpec:
    """The job of SCHEMA_OF_SHOP."""
    columns = SCHEMA_OF_SHOP.sample_columns
    return job_of_ids(
        SCHEMA_OF_SHOP.features, dense_features=1, dense_names=columns.dense, name="files", rules=columns.rules
    )


def write_model(path: Path, job: JobSpec, *, schema: Schema | None = None, offset: float = 0.0) -> None:
    """Writes a model whose score is the sum of all values of a sample's rows and dense features, plus `offset`."""
    dimension = job.table.dimension
    with new_folder(path) as folder:
        for table in job.tables:
            with SortedRows(table.dimension, folder.path) as rows:
                values = np.repeat(IDS.astype(np.float32)[:, None], dimension, axis=1)
                rows.add(RowBlock(IDS, np.ones(len(IDS), np.int64), values))
                write_table(folder, table, rows)
        folder.write(ONNX, _graph(job, offset))
        folder.write(CONFIG, json.dumps({"format": FORMAT, "model": describe_model(job)}).encode())
        if schema is not None:
            folder.write(SCHEMA, schema_text(schema).encode())


def _graph(job: JobSpec, offset: float) -> bytes:
    names = [input_names(each)[0] for each in job.features]
    dense = ["dense"] if job.dense_features else []
    widths = [job.table.dimension] * len(names) + [job.dense_features] * len(dense)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", width])
        for name, width in zip([*names, *dense], widths, strict=True)
    ]
    nodes = [
        helper.make_node("Concat", [*names, *dense], ["all"], axis=1),
        helper.make_node("ReduceSum", ["all", "axes"], ["sum"], keepdims=1),
        helper.make_node("Add", ["sum", "offset"], ["scores"]),
    ]
    constants = [
        helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
        helper.make_tensor("offset", TensorProto.FLOAT, [1], [offset]),
    ]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["m", 1])]
    graph = helper.make_graph(nodes, "sum", inputs, outputs, constants)
    model: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return model


def expected(ids: Any, dense: Any, *, offset: float = 0.0, dimension: int) -> np.ndarray:
    """The scores of samples of trained ids [n, F] and dense features [n, d], float32 [n]."""
    ids, dense = np.asarray(ids, np.float32), np.asarray(dense, np.float32)
    summed: np.ndarray = ids.sum(axis=1) * dimension + dense.sum(axis=1) + np.float32(offset)
    return summed


def request_of(ids: np.ndarray) -> inference_pb2.ModelInferRequest:
    """A request for scores of samples of `job_of_ids()`, whose ids are uint64 [n, 2] and whose dense features are 0."""
    tensor, count = inference_pb2.ModelInferRequest.InferInputTensor, len(ids)
    return inference_pb2.ModelInferRequest(
        model_name="shop",
        inputs=[
            tensor(name="ids", datatype="UINT64", shape=[count, 2]),
            tensor(name="dense", datatype="FP32", shape=[count, 2]),
        ],
        raw_input_contents=[ids.tobytes(), bytes(8 * count)],
    )


@asynccontextmanager
async def served_here(folder: Path, **settings: Any) -> AsyncIterator[Serving]:
    """A server in this process."""
    given = {"metrics_port": None, "grace_seconds": 0, "answer_seconds": 250, "name": "shop", "threads": 2} | settings
    async with serve_model(ModelSettings(folder=folder, **given)) as serving:
        yield serving


def served(folder: Path, *options: object, **variables: str) -> AbstractContextManager[dict[str, Any]]:
    """A server as a process; gives its ready line."""
    return serving("model", folder, "--name", "shop", *options, **variables)
