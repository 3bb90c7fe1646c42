"""Embedding sample dispatch: the public names.

    import esd

    with esd.DispatcherClient("127.0.0.1:50051") as dispatcher:
        state = dispatcher.describe()

A name is imported when it is first used: some take time, or need numpy, gRPC, the native kernels or torch, and the
command `esd` needs none of them to answer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esd.connected import connect
    from esd.data.schema import Id, IdList, Schema, TableOptions
    from esd.fitted import Run
    from esd.hybrid import hybrid_dis
    from esd.local import LocalCluster
    from esd.model.trained import TrainedModel, load
    from esd.run.events import StopRun
    from esd.services.clients.checkpoints import CheckpointClient
    from esd.services.clients.dispatcher import DispatcherClient
    from esd.services.clients.dispatcher_async import AsyncDispatcherClient
    from esd.services.clients.parameter_server import ParameterServerConnection
    from esd.services.clients.rows import RowClient
    from esd.services.clients.tables import TableClient
    from esd.services.domain import errors
    from esd.services.domain.batches import SampleBatch
    from esd.services.domain.dense_sums import DenseSum, parse_dense_sum
    from esd.services.domain.features import Feature, Pooling
    from esd.services.domain.hybrid import HybridResult
    from esd.services.domain.ids import in_table
    from esd.services.domain.jobs import JobSpec, ModelSpec, RowLimitPolicy, equal_workloads
    from esd.services.domain.losses import Loss
    from esd.services.domain.mechanisms import (
        Criterion,
        EsdOptions,
        HashOptions,
        JointOptions,
        LaiaOptions,
        LaiaReading,
        MechanismOptions,
    )
    from esd.services.domain.negatives import Negatives
    from esd.services.domain.plans import (
        EndOfStream,
        FlushPlan,
        GradientTransfers,
        IterationPlan,
        Membership,
        PlanMessage,
        Reload,
        Transfers,
    )
    from esd.services.domain.reports import (
        FailureReport,
        FlushReport,
        IterationReport,
        Lease,
        PhaseTimes,
        Registration,
        TransferCounts,
        WorkerPhase,
    )
    from esd.services.domain.schedules import Decay, Schedule
    from esd.services.domain.sites import site_key
    from esd.services.domain.state import Evaluation, JobPhase, JobState, Quality, Ranking, WorkerState
    from esd.services.domain.sync import Sync, parse_sync
    from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
    from esd.services.domain.watched import MoveReason, Moves, PlanStage, WatchedPlans, WorkerMoves
    from esd.services.runtime.security import Credentials
    from esd.session import Session
    from esd.tables import read
    from esd.trackers import MLflow, OptunaPruning, TensorBoard, Tracker, WandB
    from esd.worker.models.inputs import Jagged, ModelInputs, SharedLists
    from esd.worker.models.model import Model
    from esd.worker.training.step import Step

    __version__: str

__all__ = [
    "AsyncDispatcherClient",
    "CheckpointClient",
    "Credentials",
    "Criterion",
    "Decay",
    "DenseSum",
    "DispatcherClient",
    "EndOfStream",
    "EsdOptions",
    "Evaluation",
    "FailureReport",
    "Feature",
    "FlushPlan",
    "FlushReport",
    "GradientTransfers",
    "HashOptions",
    "HybridResult",
    "Id",
    "IdList",
    "IterationPlan",
    "IterationReport",
    "Jagged",
    "JobPhase",
    "JobSpec",
    "JobState",
    "JointOptions",
    "LaiaOptions",
    "LaiaReading",
    "Lease",
    "LocalCluster",
    "Loss",
    "MLflow",
    "MechanismOptions",
    "Membership",
    "Model",
    "ModelInputs",
    "ModelSpec",
    "MoveReason",
    "Moves",
    "Negatives",
    "OptimizerKind",
    "OptimizerSpec",
    "OptunaPruning",
    "ParameterServerConnection",
    "PhaseTimes",
    "PlanMessage",
    "PlanStage",
    "Pooling",
    "Quality",
    "Ranking",
    "Registration",
    "Reload",
    "RowClient",
    "RowLimitPolicy",
    "Run",
    "SampleBatch",
    "Schedule",
    "Schema",
    "Session",
    "SharedLists",
    "Step",
    "StopRun",
    "Sync",
    "TableClient",
    "TableOptions",
    "TableSpec",
    "TensorBoard",
    "Tracker",
    "TrainedModel",
    "TransferCounts",
    "Transfers",
    "WandB",
    "WatchedPlans",
    "WorkerMoves",
    "WorkerPhase",
    "WorkerState",
    "__version__",
    "connect",
    "equal_workloads",
    "errors",
    "hybrid_dis",
    "in_table",
    "load",
    "parse_dense_sum",
    "parse_sync",
    "read",
    "site_key",
]

_MODULES = {
    "AsyncDispatcherClient": "esd.services.clients.dispatcher_async",
    "CheckpointClient": "esd.services.clients.checkpoints",
    "connect": "esd.connected",
    "Credentials": "esd.services.runtime.security",
    "Criterion": "esd.services.domain.mechanisms",
    "Decay": "esd.services.domain.schedules",
    "DenseSum": "esd.services.domain.dense_sums",
    "DispatcherClient": "esd.services.clients.dispatcher",
    "EndOfStream": "esd.services.domain.plans",
    "equal_workloads": "esd.services.domain.jobs",
    "site_key": "esd.services.domain.sites",
    "EsdOptions": "esd.services.domain.mechanisms",
    "Evaluation": "esd.services.domain.state",
    "FailureReport": "esd.services.domain.reports",
    "Feature": "esd.services.domain.features",
    "FlushPlan": "esd.services.domain.plans",
    "FlushReport": "esd.services.domain.reports",
    "GradientTransfers": "esd.services.domain.plans",
    "HashOptions": "esd.services.domain.mechanisms",
    "hybrid_dis": "esd.hybrid",
    "in_table": "esd.services.domain.ids",
    "HybridResult": "esd.services.domain.hybrid",
    "Id": "esd.data.schema",
    "IdList": "esd.data.schema",
    "IterationPlan": "esd.services.domain.plans",
    "IterationReport": "esd.services.domain.reports",
    "Jagged": "esd.worker.models.inputs",
    "JobPhase": "esd.services.domain.state",
    "JobSpec": "esd.services.domain.jobs",
    "JobState": "esd.services.domain.state",
    "JointOptions": "esd.services.domain.mechanisms",
    "LaiaOptions": "esd.services.domain.mechanisms",
    "LaiaReading": "esd.services.domain.mechanisms",
    "Lease": "esd.services.domain.reports",
    "load": "esd.model.trained",
    "LocalCluster": "esd.local",
    "Loss": "esd.services.domain.losses",
    "MechanismOptions": "esd.services.domain.mechanisms",
    "Membership": "esd.services.domain.plans",
    "MLflow": "esd.trackers",
    "Model": "esd.worker.models.model",
    "ModelInputs": "esd.worker.models.inputs",
    "ModelSpec": "esd.services.domain.jobs",
    "MoveReason": "esd.services.domain.watched",
    "Moves": "esd.services.domain.watched",
    "Negatives": "esd.services.domain.negatives",
    "OptimizerKind": "esd.services.domain.tables",
    "OptimizerSpec": "esd.services.domain.tables",
    "OptunaPruning": "esd.trackers",
    "ParameterServerConnection": "esd.services.clients.parameter_server",
    "parse_dense_sum": "esd.services.domain.dense_sums",
    "parse_sync": "esd.services.domain.sync",
    "PhaseTimes": "esd.services.domain.reports",
    "PlanMessage": "esd.services.domain.plans",
    "PlanStage": "esd.services.domain.watched",
    "Pooling": "esd.services.domain.features",
    "Quality": "esd.services.domain.state",
    "Ranking": "esd.services.domain.state",
    "read": "esd.tables",
    "Registration": "esd.services.domain.reports",
    "Reload": "esd.services.domain.plans",
    "RowClient": "esd.services.clients.rows",
    "RowLimitPolicy": "esd.services.domain.jobs",
    "Run": "esd.fitted",
    "SampleBatch": "esd.services.domain.batches",
    "Schedule": "esd.services.domain.schedules",
    "Schema": "esd.data.schema",
    "Session": "esd.session",
    "SharedLists": "esd.worker.models.inputs",
    "Step": "esd.worker.training.step",
    "StopRun": "esd.run.events",
    "Sync": "esd.services.domain.sync",
    "TableClient": "esd.services.clients.tables",
    "TableOptions": "esd.data.schema",
    "TableSpec": "esd.services.domain.tables",
    "TensorBoard": "esd.trackers",
    "Tracker": "esd.trackers",
    "TrainedModel": "esd.model.trained",
    "TransferCounts": "esd.services.domain.reports",
    "Transfers": "esd.services.domain.plans",
    "WandB": "esd.trackers",
    "WatchedPlans": "esd.services.domain.watched",
    "WorkerMoves": "esd.services.domain.watched",
    "WorkerPhase": "esd.services.domain.reports",
    "WorkerState": "esd.services.domain.state",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = import_module("importlib.metadata").version("esd-train")
    elif name == "errors":
        value = import_module("esd.services.domain.errors")
    elif name in _MODULES:
        value = getattr(_module_of(name), name)
    else:
        raise AttributeError(f"module 'esd' has no attribute {name!r}")
    globals()[name] = value  # from now on the name is found without this function
    return value


def _module_of(name: str) -> Any:
    try:
        return import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        if (missing := import_module("esd.native").is_missing(error)) is not None:
            raise ModuleNotFoundError(missing, name=error.name) from None
        if error.name != "torch":
            raise
        torch_is_missing = import_module("esd.services.runtime.extras").torch_is_missing
        raise ModuleNotFoundError(torch_is_missing(f"esd.{name}"), name="torch") from None


def __dir__() -> list[str]:
    return sorted(__all__)
