"""Jobs that earlier versions described, as checkpoints and decision logs keep them, are read.

`describe_job` of these versions wrote `old_jobs.jsonl`: lines 1 to 6 are of commit c43d73d, where the options of
mechanisms and of ways to synchronise were fields of the job; lines 7 and 8 are of commit 05979c0, where only the
options of mechanisms were.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.service.state.manifest import describe_job
from esd.services.domain.features import Feature
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.domain.mechanisms import Criterion, EsdOptions, HashOptions, JointOptions
from esd.services.domain.sync import Bounded, Full, OnDemand, Replicated, WriteThrough
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.wire.jobs import job_of_json

DESCRIBED = [json.loads(line) for line in (Path(__file__).parent / "old_jobs.jsonl").read_text().splitlines()]
OF_ESD = EsdOptions(alpha=0.0, criterion=Criterion.ROW_MEAN, solver="paths", eviction_term=True)
OPTIONS = [
    {"mechanism": "esd", "mechanism_options": OF_ESD, "sync": OnDemand(direct=True)},
    {"mechanism": "esd-priced", "mechanism_options": EsdOptions(alpha=0.5, auto_alpha=True), "sync": Replicated(50)},
    {"mechanism": "joint", "mechanism_options": JointOptions(horizon=3), "sync": Bounded(pull=4, push=0)},
    {"mechanism": "hash", "mechanism_options": HashOptions(hash_field=0), "sync": WriteThrough()},
    {"mechanism": "hash", "mechanism_options": HashOptions(), "sync": Full()},
    {"mechanism": "laia", "sync": OnDemand()},  # its alpha and its criterion had no effect
    {"mechanism": "esd", "mechanism_options": OF_ESD, "sync": OnDemand(direct=True)},
    {"mechanism": "joint", "mechanism_options": JointOptions(horizon=3), "sync": Bounded(pull=4, push=0)},
]


def job(options: dict[str, Any]) -> JobSpec:
    sgd = OptimizerSpec(OptimizerKind.SGD)
    return JobSpec(
        name="clicks",
        workers=2,
        workloads=(2, 2),
        batch_size=4,
        policy="lru",
        seed=7,
        window=2,
        features=(Feature("user"), Feature("item")),
        dense_features=1,
        tables=(TableSpec("clicks", 4, sgd, 7, 0.5),),
        model=ModelSpec("wdl", (8,), sgd),
        parameter_servers=("any",),
        **options,
    )


@pytest.mark.parametrize(("described", "options"), list(zip(DESCRIBED, OPTIONS, strict=True)))
def test_the_job_of_an_earlier_version_is_read(described: dict[str, Any], options: dict[str, Any]) -> None:
    assert job_of_json(described) == job(options)


@pytest.mark.parametrize(
    "options", [*OPTIONS, *({"mechanism": name} for name in ("esd", "esd-priced", "joint", "hash"))], ids=str
)
def test_the_job_of_this_version_is_read(options: dict[str, Any]) -> None:
    assert job_of_json(describe_job(job(options))) == job(options)
