"""Hand-made plans: rows are written as tuples and become columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from esd.services.domain.dense_sums import ALL_REDUCE
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.plans import GradientTransfers, IterationPlan, Transfers
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.worker.training.device import prepare_device

Row = tuple[int, int, int]  # id, slot, version
GradientRow = tuple[int, int, int, int]  # id, slot, version, contributors


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """A test's draws from torch do not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of training; on a GPU the results are those on the processor, up to rounding."""
    return prepare_device(request.param, torch.get_num_threads())


class HandMadePlans:
    @staticmethod
    def rows(*rows: Row) -> Transfers:
        ids, slots, versions = zip(*rows, strict=True) if rows else ((), (), ())
        return Transfers(np.array(ids, np.uint64), np.array(slots, np.uint32), np.array(versions, np.int64), early=0)

    @classmethod
    def gradients(cls, *rows: GradientRow) -> GradientTransfers:
        return GradientTransfers(
            cls.rows(*(row[:3] for row in rows)),
            contributors=np.array([row[3] for row in rows], np.uint64),
            steps=np.array([row[2] for row in rows], np.int64),
        )

    @classmethod
    def plan(
        cls, iteration: int, *, pulls: Sequence[Row] = (), train: Sequence[GradientRow] = (), **changes: object
    ) -> IterationPlan:
        """One sample of one field per row to train; the rows are (id, slot, version, contributors)."""
        trained = cls.rows(*(row[:3] for row in train))
        samples = len(train)
        plan = IterationPlan(
            epoch=1,
            iteration=iteration,
            batch_size=max(samples, 1),
            update_rows=cls.rows(),
            update_gradients=cls.gradients(),
            evict_rows=cls.rows(),
            evict_gradients=cls.gradients(),
            drops=cls.rows(),
            pulls=cls.rows(*pulls),
            positions=np.arange(samples, dtype=np.uint32),
            unique_ids=trained.ids,
            unique_slots=trained.slots,
            unique_versions=trained.versions,
            unique_contributors=np.array([row[3] for row in train], np.uint64),
            inverse=np.arange(samples, dtype=np.uint32),
            dense=np.zeros((samples, 0), np.float32),
            labels=np.zeros((samples, 1), np.float32),
            forgotten=np.zeros(0, np.uint64),
            forgotten_below=0,
            discards=cls.rows(),
        )
        return replace(plan, **changes)  # type: ignore[arg-type]


@pytest.fixture
def plans() -> type[HandMadePlans]:
    return HandMadePlans


@pytest.fixture
def make_job():
    """A small job; the model is named by its own arguments."""

    def make(
        *,
        model: str = "wdl",
        hidden: tuple[int, ...] = (8, 4),
        dimension: int = 5,
        dense_features: int = 3,
        optimizer: OptimizerSpec = OptimizerSpec(),  # noqa: B008 - immutable
        workers: int = 1,
    ) -> JobSpec:
        return JobSpec(
            name="job",
            dense_sum=ALL_REDUCE,
            workers=workers,
            features=numbered_ids(4),
            dense_features=dense_features,
            batch_size=8,
            workloads=equal_workloads(8, workers),
            mechanism="esd",
            policy="emark",
            seed=7,
            window=2,
            tables=(TableSpec("rows", dimension, optimizer, seed=7, init_scale=0.1),),
            model=ModelSpec(model, hidden, optimizer),
            parameter_servers=("127.0.0.1:1",),
        )

    return make
