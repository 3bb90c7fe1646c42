"""Frames of the exchange, also such as no honest client would send."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from esd.protos import ps_pb2
from esd.services.domain.rows import GradientBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

SPEC = TableSpec("t", 16, OptimizerSpec(OptimizerKind.ADAM, 0.1), seed=11, init_scale=0.5)
NO_GRADIENTS = GradientBlock(
    np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.uint32),
    np.empty(0, np.float32), np.empty((0, SPEC.dimension), np.float32), 0,
)  # fmt: skip


def row_push(ids: ArrayLike, version: ArrayLike, rows: ArrayLike) -> ps_pb2.ExchangeRequest:
    """A frame that stores rows; `version` may be one for all rows."""
    ids = np.asarray(ids, np.uint64)
    versions = np.broadcast_to(np.asarray(version, np.int64), len(ids))
    rows = np.ascontiguousarray(np.broadcast_to(rows, (len(ids), SPEC.row_width)), np.float32)
    body = ps_pb2.RowBlock(ids=ids.tobytes(), versions=versions.tobytes(), rows=rows.tobytes())
    return ps_pb2.ExchangeRequest(table="t", rows=body)


def gradient_push(
    worker: int, ids: ArrayLike, target: int, contributors: int, gradients: ArrayLike, step: int = 1, rate: float = 0.1
) -> ps_pb2.ExchangeRequest:
    """A frame of one worker's partial gradients."""
    ids = np.asarray(ids, np.uint64)
    gradients = np.ascontiguousarray(np.broadcast_to(gradients, (len(ids), SPEC.dimension)), np.float32)
    body = ps_pb2.GradientBlock(
        ids=ids.tobytes(),
        target_versions=np.full(len(ids), target, np.int64).tobytes(),
        contributors=np.full(len(ids), contributors, np.uint64).tobytes(),
        steps=np.full(len(ids), step, np.uint32).tobytes(),
        rates=np.full(len(ids), rate, np.float32).tobytes(),
        gradients=gradients.tobytes(),
        worker=worker,
    )
    return ps_pb2.ExchangeRequest(table="t", gradients=body)


def frame(
    sequence: int,
    *pushes: ps_pb2.ExchangeRequest,
    pull: tuple[ArrayLike, ArrayLike] | None = None,
    stateless: int = 0,
    **fields: Any,
) -> ps_pb2.ExchangeRequest:
    """A frame of the rows and gradients of these pushes, and a pull of (ids, version), the last ones stateless.

    `wait_ms` is 10 s.
    """
    request = ps_pb2.ExchangeRequest(**{"sequence": sequence, "table": "t", "wait_ms": 10_000, **fields})
    for push in pushes:
        if push.HasField("rows"):
            request.rows.CopyFrom(push.rows)
        if push.HasField("gradients"):
            request.gradients.CopyFrom(push.gradients)
    if pull is not None:
        ids = np.asarray(pull[0], np.uint64)
        request.pulls.ids = ids.tobytes()
        request.pulls.versions = np.broadcast_to(np.asarray(pull[1], np.int64), len(ids)).tobytes()
        request.pulls.stateless = stateless
    return request
