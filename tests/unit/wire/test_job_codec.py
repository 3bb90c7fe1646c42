"""Tables, optimizers and jobs survive the wire exactly; malformed ones are refused by field."""

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esd.protos import common_pb2, dispatcher_pb2
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.jobs import JobSpec, ModelSpec, RowLimitPolicy, equal_workloads
from esd.services.domain.losses import Loss
from esd.services.domain.mechanisms import (
    OPTIONS,
    Criterion,
    EsdOptions,
    HashOptions,
    JointOptions,
    LaiaOptions,
    LaiaReading,
    MechanismOptions,
)
from esd.services.domain.negatives import Negatives
from esd.services.domain.schedules import CONSTANT, Decay, Schedule
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.wire.jobs import CRITERIA, decode_job, encode_job
from esd.services.wire.tables import decode_optimizer, decode_table, encode_optimizer, encode_table

POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
BETA = st.floats(0, 1, exclude_max=True)
SEED = st.integers(0, 2**64 - 1)
OPTIMIZERS = st.builds(OptimizerSpec, st.sampled_from(OptimizerKind), POSITIVE, POSITIVE, BETA, BETA)
NORMS = st.floats(0, allow_infinity=False)
ROW_OPTIMIZERS = st.builds(OptimizerSpec, st.sampled_from(OptimizerKind), POSITIVE, POSITIVE, BETA, BETA, NORMS)
TABLES = st.builds(
    TableSpec,
    name=st.from_regex(r"[a-z0-9_-]{1,64}", fullmatch=True),
    dimension=st.integers(1, 4096),
    optimizer=ROW_OPTIMIZERS,
    seed=SEED,
    init_scale=st.floats(0, allow_infinity=False),
)
MODELS = st.builds(
    ModelSpec,
    st.sampled_from(["wdl", "dlrm"]),
    st.lists(st.integers(1, 4096), max_size=3).map(tuple),
    OPTIMIZERS,
    weight_decay=st.floats(0, 1),
    clip_norm=st.floats(0, 1e6),
    loss=st.sampled_from(Loss),
)
SCHEDULES = st.sampled_from(
    [CONSTANT, Schedule(warm_up=3), Schedule(Decay.COSINE, 3, 10, 0.1), Schedule(Decay.STEP, 0, 7, 0.0)]
)

OF_ESD = st.builds(
    EsdOptions,
    alpha=st.floats(0, 1),
    auto_alpha=st.booleans(),
    criterion=st.sampled_from(Criterion),
    solver=st.sampled_from(["auto", "paths", "dual-cuda"]),
    eviction_term=st.booleans(),
)
# The options of each mechanism, for samples of so many fields.
MECHANISMS: dict[str, Callable[[int], st.SearchStrategy[MechanismOptions | None]]] = {
    "random": lambda _: st.none(),
    "laia": lambda _: st.builds(LaiaOptions, st.sampled_from(LaiaReading)),
    "esd": lambda _: OF_ESD,
    "esd-priced": lambda _: OF_ESD,
    "joint": lambda _: st.builds(JointOptions, st.integers(1, 64)),
    "hash": lambda fields: st.builds(HashOptions, st.none() | st.integers(0, fields - 1)),
}


NEGATIVES = st.fixed_dictionaries(
    {
        "negatives": st.none()
        | st.builds(
            Negatives,
            name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
            ids=st.integers(1, 2**40),
            count=st.integers(1, 2**20),
            chunk=st.integers(0, 2**32 - 1),
        )
    }
)


def admission(tables: int) -> st.SearchStrategy[dict[str, Any]]:
    of_tables = st.tuples(st.integers(2, 255), *[st.integers(1, 255)] * (tables - 1))
    return st.fixed_dictionaries({"admit_afters": st.just(()) | of_tables})


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    workloads = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=64).filter(any))
    fields = draw(st.integers(1, 100))
    poolings = [draw(st.sampled_from(Pooling)) for _ in range(fields)]
    features = tuple(
        Feature(f"f{i}", 0, pooling, 1 if pooling is Pooling.ONE else 1 + 7 * i, draw(st.sampled_from(["", "item"])))
        for i, pooling in enumerate(poolings)
    )
    dense = draw(st.integers(0, 100))
    mechanism = draw(st.sampled_from(sorted(MECHANISMS)))
    tables = draw(st.lists(TABLES, min_size=1, max_size=16, unique_by=lambda table: table.name))
    return JobSpec(
        name=draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)),
        workers=len(workloads),
        features=features,
        labels=tuple(f"label {i}" for i in range(draw(st.integers(1, 3)))),
        dense_features=dense,
        dense_names=draw(st.sampled_from([(), tuple(f"ln(1 + d{i})" for i in range(dense))])),
        rules=draw(st.sampled_from([(), (("label", "1 from 4 on"), ("missing age", "35"))])),
        batch_size=sum(workloads),
        workloads=tuple(workloads),
        mechanism=mechanism,
        mechanism_options=draw(st.none() | MECHANISMS[mechanism](fields)),
        policy=draw(st.sampled_from(["emark", "lru", "lfu"])),
        seed=draw(SEED),
        window=draw(st.integers(1, 100)),
        tables=tuple(tables),
        row_ttls=draw(st.just(()) | st.tuples(*[st.integers(0, 2**28 - 1)] * len(tables))),
        **draw(admission(len(tables)) | NEGATIVES),
        model=draw(MODELS),
        schedule=draw(SCHEDULES),
        dense_schedule=draw(SCHEDULES),
        parameter_servers=tuple(f"127.0.0.1:{port}" for port in range(1, draw(st.integers(2, 4)))),
        budget_seconds=draw(st.floats(0, 1e6)),
        workload_limits=draw(st.none() | st.tuples(st.integers(0, min(workloads)), st.integers(max(workloads), 5000))),
        measured_links=draw(st.booleans()),
        max_rows=draw(st.integers(1, 2**64 - 1)),
        at_max_rows=draw(st.sampled_from(RowLimitPolicy)),
        checkpoint_every=draw(st.integers(0, 10**6)),
        checkpoint_seconds=draw(st.floats(0, 1e6)),
        checkpoint_bytes=draw(st.integers(0, 2**64 - 1)),
        checkpoints_kept=draw(st.integers(1, 100)),
    )


def good_job() -> dispatcher_pb2.JobSpec:
    optimizer = encode_optimizer(OptimizerSpec())
    return dispatcher_pb2.JobSpec(
        name="job",
        workers=3,
        features=[dispatcher_pb2.Feature(name="user"), dispatcher_pb2.Feature(name="item")],
        batch_size=8,
        mechanism="esd",
        mechanism_options=dispatcher_pb2.MechanismOptions(esd={"alpha": 0.5}),
        policy="emark",
        window=2,
        tables=[common_pb2.TableSpec(name="t", dimension=4, optimizer=optimizer, init_scale=0.1)],
        model=dispatcher_pb2.ModelSpec(name="wdl", hidden=[8], dense_optimizer=optimizer),
        parameter_servers=["127.0.0.1:1"],
    )


@given(OPTIMIZERS)
def test_optimizers_round_trip(spec: OptimizerSpec) -> None:
    wire = encode_optimizer(spec).SerializeToString()
    assert decode_optimizer(common_pb2.Optimizer.FromString(wire)) == spec


@given(TABLES)
def test_tables_round_trip(spec: TableSpec) -> None:
    assert decode_table(common_pb2.TableSpec.FromString(encode_table(spec).SerializeToString())) == spec


@given(jobs())
def test_jobs_round_trip(job: JobSpec) -> None:
    assert decode_job(dispatcher_pb2.JobSpec.FromString(encode_job(job).SerializeToString())) == job


def test_a_job_and_its_message_have_the_same_fields() -> None:
    assert {field.name for field in fields(JobSpec)} == set(dispatcher_pb2.JobSpec.DESCRIPTOR.fields_by_name)


def test_what_a_message_leaves_out_is_as_in_a_job_that_leaves_it_out() -> None:
    job = decode_job(good_job())
    for field in fields(JobSpec):
        if field.default is not MISSING and field.name != "mechanism_options":
            assert getattr(job, field.name) == field.default


@pytest.mark.parametrize("options", OPTIONS.values())
def test_options_that_a_message_leaves_out_have_their_defaults(options: type[MechanismOptions]) -> None:
    message = good_job()
    message.mechanism = options.name
    message.ClearField("mechanism_options")
    getattr(message.mechanism_options, options.name).SetInParent()
    assert decode_job(message).mechanism_options == options()
    message.ClearField("mechanism_options")
    job = decode_job(message)
    assert (job.mechanism_options, job.options) == (None, options())


def test_no_workloads_mean_equal_shares() -> None:
    assert decode_job(good_job()).workloads == equal_workloads(8, 3)


def test_sgd_needs_no_epsilon() -> None:
    message = common_pb2.Optimizer(kind=common_pb2.Optimizer.KIND_SGD, learning_rate=0.1)
    assert decode_optimizer(message).learning_rate == 0.1
    message.kind = common_pb2.Optimizer.KIND_ADAM
    with pytest.raises(InvalidArgument, match=r"epsilon is 0\.0"):
        decode_optimizer(message)


@pytest.mark.parametrize("number", [-1, 5, 2**31 - 1])
def test_an_unknown_criterion_is_refused(number: int) -> None:
    with pytest.raises(InvalidArgument, match=f"criterion is {number}"):
        CRITERIA.decode(number)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda job: job.ClearField("tables"), "number of tables is 0"),
        (lambda job: job.tables.extend([job.tables[0]]), "two tables of the job have the same name"),
        (lambda job: job.tables.extend([job.tables[0]] * 256), "number of tables is 257"),
        (lambda job: job.ClearField("model"), "job.model is not set"),
        (lambda job: job.tables[0].ClearField("optimizer"), "optimizer.kind is 0"),
        (lambda job: setattr(job.model.dense_optimizer, "kind", 9), "optimizer.kind is 9"),
        (lambda job: setattr(job.tables[0].optimizer, "learning_rate", float("nan")), "learning rate is nan"),
        (lambda job: setattr(job.tables[0], "dimension", 4097), "dimension is 4097"),
        (lambda job: setattr(job.tables[0], "name", "T/1"), "table name 'T/1'"),
        (lambda job: setattr(job, "workers", 0), "workers is 0"),
        (lambda job: setattr(job, "workers", 129), "workers is 129"),
        (lambda job: setattr(job, "workers", 2**32 - 1), "workers is 4294967295"),  # without a share for each
        (lambda job: setattr(job.mechanism_options.esd, "criterion", 77), "criterion is 77"),
        (lambda job: setattr(job.mechanism_options.esd, "alpha", float("nan")), "alpha is nan"),
        (lambda job: setattr(job.mechanism_options.joint, "horizon", 65), "horizon is 65"),
        (
            lambda job: setattr(job.mechanism_options.joint, "horizon", 2),
            r"=2\), mechanism esd takes EsdOptions",
        ),
        (lambda job: setattr(job, "mechanism", "random"), r"is EsdOptions\(.*\), mechanism random has none"),
        (lambda job: job.workloads.extend([8, 0]), "2 workloads given for 3 workers"),
        (lambda job: job.workloads.extend([8, 1, 0]), "must sum to batch_size 8"),
        (lambda job: job.ClearField("parameter_servers"), "parameter_servers is empty"),
        (lambda job: job.parameter_servers.append("127.0.0.1:1"), r"names 127\.0\.0\.1:1 more than once"),
        (lambda job: job.model.hidden.append(0), r"width 0, it must be in 1\.\.16384"),
        (lambda job: job.model.hidden.append(2**31), "width 2147483648"),
        (lambda job: job.model.hidden.extend([8] * 64), "65 hidden layers, the limit is 64"),
    ],
)
def test_malformed_jobs_are_refused_by_field(spoil: Callable[[dispatcher_pb2.JobSpec], None], text: str) -> None:
    job = good_job()
    decode_job(job)
    spoil(job)
    with pytest.raises(InvalidArgument, match=text):
        decode_job(job)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameter_servers": "ps:1"}, "parameter_servers of a job is 'ps:1', it must be a tuple of str"),
        ({"labels": "clicked"}, "labels of a job is 'clicked', it must be a tuple of str"),
        ({"features": ("user",)}, r"features of a job is \('user',\), it must be a tuple of Feature"),
        ({"tables": TableSpec("t", 4, OptimizerSpec(), 1, 0.1)}, "tables of a job is TableSpec.* a tuple of TableSpec"),
        ({"dense_features": ("price",)}, "dense_features of a job is .*, it must be of the type int"),
        ({"sync": "full"}, "sync of a job is 'full', it must be of the type Sync"),
        ({"mechanism_options": "fast"}, "mechanism_options of a job is 'fast', mechanism joint takes JointOptions"),
        ({"model": "wdl"}, "model of a job is 'wdl', it must be of the type ModelSpec"),
    ],
)
def test_parts_of_another_kind_are_named(changes: dict[str, Any], message: str) -> None:
    job = JobSpec(
        name="j",
        features=(Feature("user"),),
        dense_features=1,
        batch_size=8,
        seed=1,
        tables=(TableSpec("t", 4, OptimizerSpec(), 1, 0.1),),
        model=ModelSpec("wdl", (8,), OptimizerSpec()),
        parameter_servers=("ps:1",),
        workers=1,
        workloads=(8,),
        mechanism="joint",
        policy="emark",
        window=4,
    )
    with pytest.raises(InvalidArgument, match=message):
        replace(job, **changes)
