from esd.protos import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Criterion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CRITERION_UNSPECIFIED: _ClassVar[Criterion]
    CRITERION_MIN2_MIN: _ClassVar[Criterion]
    CRITERION_MIN3_MIN: _ClassVar[Criterion]
    CRITERION_MIN3_MIN2: _ClassVar[Criterion]
    CRITERION_ROW_MEAN: _ClassVar[Criterion]

class Loss(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOSS_UNSPECIFIED: _ClassVar[Loss]
    LOSS_BCE: _ClassVar[Loss]
    LOSS_MSE: _ClassVar[Loss]
    LOSS_POISSON: _ClassVar[Loss]
    LOSS_HINGE: _ClassVar[Loss]
    LOSS_OWN: _ClassVar[Loss]

class Pooling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POOLING_UNSPECIFIED: _ClassVar[Pooling]
    POOLING_ONE: _ClassVar[Pooling]
    POOLING_SUM: _ClassVar[Pooling]
    POOLING_MEAN: _ClassVar[Pooling]
    POOLING_LIST: _ClassVar[Pooling]

class RowLimitPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROW_LIMIT_POLICY_UNSPECIFIED: _ClassVar[RowLimitPolicy]
    ROW_LIMIT_POLICY_REFUSE: _ClassVar[RowLimitPolicy]
    ROW_LIMIT_POLICY_FORGET: _ClassVar[RowLimitPolicy]

class WorkerPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_PHASE_UNSPECIFIED: _ClassVar[WorkerPhase]
    WORKER_PHASE_IDLE: _ClassVar[WorkerPhase]
    WORKER_PHASE_PUSH: _ClassVar[WorkerPhase]
    WORKER_PHASE_PULL: _ClassVar[WorkerPhase]
    WORKER_PHASE_COMPUTE: _ClassVar[WorkerPhase]
    WORKER_PHASE_ALL_REDUCE: _ClassVar[WorkerPhase]
    WORKER_PHASE_FLUSH: _ClassVar[WorkerPhase]

class DenseRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DENSE_ROLE_UNSPECIFIED: _ClassVar[DenseRole]
    DENSE_ROLE_RESTS: _ClassVar[DenseRole]
    DENSE_ROLE_GIVES: _ClassVar[DenseRole]
    DENSE_ROLE_RETURNS: _ClassVar[DenseRole]
    DENSE_ROLE_TRAINS_ON: _ClassVar[DenseRole]
    DENSE_ROLE_RESTS_ON: _ClassVar[DenseRole]
CRITERION_UNSPECIFIED: Criterion
CRITERION_MIN2_MIN: Criterion
CRITERION_MIN3_MIN: Criterion
CRITERION_MIN3_MIN2: Criterion
CRITERION_ROW_MEAN: Criterion
LOSS_UNSPECIFIED: Loss
LOSS_BCE: Loss
LOSS_MSE: Loss
LOSS_POISSON: Loss
LOSS_HINGE: Loss
LOSS_OWN: Loss
POOLING_UNSPECIFIED: Pooling
POOLING_ONE: Pooling
POOLING_SUM: Pooling
POOLING_MEAN: Pooling
POOLING_LIST: Pooling
ROW_LIMIT_POLICY_UNSPECIFIED: RowLimitPolicy
ROW_LIMIT_POLICY_REFUSE: RowLimitPolicy
ROW_LIMIT_POLICY_FORGET: RowLimitPolicy
WORKER_PHASE_UNSPECIFIED: WorkerPhase
WORKER_PHASE_IDLE: WorkerPhase
WORKER_PHASE_PUSH: WorkerPhase
WORKER_PHASE_PULL: WorkerPhase
WORKER_PHASE_COMPUTE: WorkerPhase
WORKER_PHASE_ALL_REDUCE: WorkerPhase
WORKER_PHASE_FLUSH: WorkerPhase
DENSE_ROLE_UNSPECIFIED: DenseRole
DENSE_ROLE_RESTS: DenseRole
DENSE_ROLE_GIVES: DenseRole
DENSE_ROLE_RETURNS: DenseRole
DENSE_ROLE_TRAINS_ON: DenseRole
DENSE_ROLE_RESTS_ON: DenseRole

class RecordEvaluationsRequest(_message.Message):
    __slots__ = ("job", "evaluations")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    job: str
    evaluations: _containers.RepeatedCompositeFieldContainer[Evaluation]
    def __init__(self, job: _Optional[str] = ..., evaluations: _Optional[_Iterable[_Union[Evaluation, _Mapping]]] = ...) -> None: ...

class RecordEvaluationsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeJobRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobState
    def __init__(self, job: _Optional[_Union[JobState, _Mapping]] = ...) -> None: ...

class DescribePageRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class DescribePageResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class WatchPlansRequest(_message.Message):
    __slots__ = ("job", "from_iteration", "epoch", "ids")
    JOB_FIELD_NUMBER: _ClassVar[int]
    FROM_ITERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    job: str
    from_iteration: int
    epoch: int
    ids: bool
    def __init__(self, job: _Optional[str] = ..., from_iteration: _Optional[int] = ..., epoch: _Optional[int] = ..., ids: _Optional[bool] = ...) -> None: ...

class WatchPlansResponse(_message.Message):
    __slots__ = ("epoch", "iteration", "stage", "workers", "piece")
    class Stage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STAGE_UNSPECIFIED: _ClassVar[WatchPlansResponse.Stage]
        STAGE_RELOAD: _ClassVar[WatchPlansResponse.Stage]
        STAGE_CHECKPOINT: _ClassVar[WatchPlansResponse.Stage]
        STAGE_ITERATION: _ClassVar[WatchPlansResponse.Stage]
        STAGE_END: _ClassVar[WatchPlansResponse.Stage]
    STAGE_UNSPECIFIED: WatchPlansResponse.Stage
    STAGE_RELOAD: WatchPlansResponse.Stage
    STAGE_CHECKPOINT: WatchPlansResponse.Stage
    STAGE_ITERATION: WatchPlansResponse.Stage
    STAGE_END: WatchPlansResponse.Stage
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    iteration: int
    stage: WatchPlansResponse.Stage
    workers: _containers.RepeatedCompositeFieldContainer[WorkerMoves]
    piece: Piece
    def __init__(self, epoch: _Optional[int] = ..., iteration: _Optional[int] = ..., stage: _Optional[_Union[WatchPlansResponse.Stage, str]] = ..., workers: _Optional[_Iterable[_Union[WorkerMoves, _Mapping]]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class WorkerMoves(_message.Message):
    __slots__ = ("worker", "slot", "samples", "plan_bytes", "moves")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PLAN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    worker: str
    slot: int
    samples: int
    plan_bytes: int
    moves: _containers.RepeatedCompositeFieldContainer[Moves]
    def __init__(self, worker: _Optional[str] = ..., slot: _Optional[int] = ..., samples: _Optional[int] = ..., plan_bytes: _Optional[int] = ..., moves: _Optional[_Iterable[_Union[Moves, _Mapping]]] = ...) -> None: ...

class Moves(_message.Message):
    __slots__ = ("reason", "gradients", "rows", "by_worker", "ids")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Moves.Reason]
        REASON_PULL: _ClassVar[Moves.Reason]
        REASON_DIRECT_PULL: _ClassVar[Moves.Reason]
        REASON_UPDATE_PUSH: _ClassVar[Moves.Reason]
        REASON_AHEAD_PUSH: _ClassVar[Moves.Reason]
        REASON_DIRECT_PUSH: _ClassVar[Moves.Reason]
        REASON_EVICT_PUSH: _ClassVar[Moves.Reason]
        REASON_FLUSH_PUSH: _ClassVar[Moves.Reason]
        REASON_DROP: _ClassVar[Moves.Reason]
    REASON_UNSPECIFIED: Moves.Reason
    REASON_PULL: Moves.Reason
    REASON_DIRECT_PULL: Moves.Reason
    REASON_UPDATE_PUSH: Moves.Reason
    REASON_AHEAD_PUSH: Moves.Reason
    REASON_DIRECT_PUSH: Moves.Reason
    REASON_EVICT_PUSH: Moves.Reason
    REASON_FLUSH_PUSH: Moves.Reason
    REASON_DROP: Moves.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BY_WORKER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    reason: Moves.Reason
    gradients: bool
    rows: int
    by_worker: _containers.RepeatedScalarFieldContainer[int]
    ids: bytes
    def __init__(self, reason: _Optional[_Union[Moves.Reason, str]] = ..., gradients: _Optional[bool] = ..., rows: _Optional[int] = ..., by_worker: _Optional[_Iterable[int]] = ..., ids: _Optional[bytes] = ...) -> None: ...

class HybridDisRequest(_message.Message):
    __slots__ = ("samples", "workers", "float_costs", "int_costs", "capacities", "alpha", "criterion", "solver")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    FLOAT_COSTS_FIELD_NUMBER: _ClassVar[int]
    INT_COSTS_FIELD_NUMBER: _ClassVar[int]
    CAPACITIES_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    CRITERION_FIELD_NUMBER: _ClassVar[int]
    SOLVER_FIELD_NUMBER: _ClassVar[int]
    samples: int
    workers: int
    float_costs: bytes
    int_costs: bytes
    capacities: bytes
    alpha: float
    criterion: Criterion
    solver: str
    def __init__(self, samples: _Optional[int] = ..., workers: _Optional[int] = ..., float_costs: _Optional[bytes] = ..., int_costs: _Optional[bytes] = ..., capacities: _Optional[bytes] = ..., alpha: _Optional[float] = ..., criterion: _Optional[_Union[Criterion, str]] = ..., solver: _Optional[str] = ...) -> None: ...

class HybridDisResponse(_message.Message):
    __slots__ = ("assignment", "total_cost", "optimal_rows", "solver", "seconds", "gap")
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COST_FIELD_NUMBER: _ClassVar[int]
    OPTIMAL_ROWS_FIELD_NUMBER: _ClassVar[int]
    SOLVER_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    assignment: bytes
    total_cost: float
    optimal_rows: bytes
    solver: str
    seconds: float
    gap: float
    def __init__(self, assignment: _Optional[bytes] = ..., total_cost: _Optional[float] = ..., optimal_rows: _Optional[bytes] = ..., solver: _Optional[str] = ..., seconds: _Optional[float] = ..., gap: _Optional[float] = ...) -> None: ...

class ModelSpec(_message.Message):
    __slots__ = ("name", "hidden", "dense_optimizer", "weight_decay", "clip_norm", "loss")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    DENSE_OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    CLIP_NORM_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    name: str
    hidden: _containers.RepeatedScalarFieldContainer[int]
    dense_optimizer: _common_pb2.Optimizer
    weight_decay: float
    clip_norm: float
    loss: Loss
    def __init__(self, name: _Optional[str] = ..., hidden: _Optional[_Iterable[int]] = ..., dense_optimizer: _Optional[_Union[_common_pb2.Optimizer, _Mapping]] = ..., weight_decay: _Optional[float] = ..., clip_norm: _Optional[float] = ..., loss: _Optional[_Union[Loss, str]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("decay", "warm_up", "iterations", "share")
    class Decay(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DECAY_UNSPECIFIED: _ClassVar[Schedule.Decay]
        DECAY_CONSTANT: _ClassVar[Schedule.Decay]
        DECAY_COSINE: _ClassVar[Schedule.Decay]
        DECAY_STEP: _ClassVar[Schedule.Decay]
    DECAY_UNSPECIFIED: Schedule.Decay
    DECAY_CONSTANT: Schedule.Decay
    DECAY_COSINE: Schedule.Decay
    DECAY_STEP: Schedule.Decay
    DECAY_FIELD_NUMBER: _ClassVar[int]
    WARM_UP_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    decay: Schedule.Decay
    warm_up: int
    iterations: int
    share: float
    def __init__(self, decay: _Optional[_Union[Schedule.Decay, str]] = ..., warm_up: _Optional[int] = ..., iterations: _Optional[int] = ..., share: _Optional[float] = ...) -> None: ...

class Feature(_message.Message):
    __slots__ = ("name", "table", "pooling", "max_length", "key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    table: int
    pooling: Pooling
    max_length: int
    key: str
    def __init__(self, name: _Optional[str] = ..., table: _Optional[int] = ..., pooling: _Optional[_Union[Pooling, str]] = ..., max_length: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("name", "workers", "seed", "features", "dense_features", "batch_size", "stream", "tables", "model", "parameter_servers", "max_rows", "at_max_rows", "mechanism", "mechanism_options", "budget_seconds", "workloads", "workload_limits", "measured_links", "policy", "window", "checkpoint_every", "checkpoint_seconds", "checkpoints_kept", "checkpoint_bytes", "sync", "schedule", "dense_schedule", "labels", "first_iteration", "auto_budget", "dense_names", "rules", "dense_sum", "row_ttls", "admit_afters", "negatives", "sites", "by_reference", "submitters", "continues_stream")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    DENSE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_SERVERS_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    AT_MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_LIMITS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_LINKS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_EVERY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_KEPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    DENSE_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    FIRST_ITERATION_FIELD_NUMBER: _ClassVar[int]
    AUTO_BUDGET_FIELD_NUMBER: _ClassVar[int]
    DENSE_NAMES_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    DENSE_SUM_FIELD_NUMBER: _ClassVar[int]
    ROW_TTLS_FIELD_NUMBER: _ClassVar[int]
    ADMIT_AFTERS_FIELD_NUMBER: _ClassVar[int]
    NEGATIVES_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    BY_REFERENCE_FIELD_NUMBER: _ClassVar[int]
    SUBMITTERS_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_STREAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    workers: int
    seed: int
    features: _containers.RepeatedCompositeFieldContainer[Feature]
    dense_features: int
    batch_size: int
    stream: str
    tables: _containers.RepeatedCompositeFieldContainer[_common_pb2.TableSpec]
    model: ModelSpec
    parameter_servers: _containers.RepeatedScalarFieldContainer[str]
    max_rows: int
    at_max_rows: RowLimitPolicy
    mechanism: str
    mechanism_options: MechanismOptions
    budget_seconds: float
    workloads: _containers.RepeatedScalarFieldContainer[int]
    workload_limits: WorkloadLimits
    measured_links: bool
    policy: str
    window: int
    checkpoint_every: int
    checkpoint_seconds: float
    checkpoints_kept: int
    checkpoint_bytes: int
    sync: Sync
    schedule: Schedule
    dense_schedule: Schedule
    labels: _containers.RepeatedScalarFieldContainer[str]
    first_iteration: int
    auto_budget: bool
    dense_names: _containers.RepeatedScalarFieldContainer[str]
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    dense_sum: DenseSum
    row_ttls: _containers.RepeatedScalarFieldContainer[int]
    admit_afters: _containers.RepeatedScalarFieldContainer[int]
    negatives: Negatives
    sites: _containers.RepeatedScalarFieldContainer[str]
    by_reference: bool
    submitters: int
    continues_stream: bool
    def __init__(self, name: _Optional[str] = ..., workers: _Optional[int] = ..., seed: _Optional[int] = ..., features: _Optional[_Iterable[_Union[Feature, _Mapping]]] = ..., dense_features: _Optional[int] = ..., batch_size: _Optional[int] = ..., stream: _Optional[str] = ..., tables: _Optional[_Iterable[_Union[_common_pb2.TableSpec, _Mapping]]] = ..., model: _Optional[_Union[ModelSpec, _Mapping]] = ..., parameter_servers: _Optional[_Iterable[str]] = ..., max_rows: _Optional[int] = ..., at_max_rows: _Optional[_Union[RowLimitPolicy, str]] = ..., mechanism: _Optional[str] = ..., mechanism_options: _Optional[_Union[MechanismOptions, _Mapping]] = ..., budget_seconds: _Optional[float] = ..., workloads: _Optional[_Iterable[int]] = ..., workload_limits: _Optional[_Union[WorkloadLimits, _Mapping]] = ..., measured_links: _Optional[bool] = ..., policy: _Optional[str] = ..., window: _Optional[int] = ..., checkpoint_every: _Optional[int] = ..., checkpoint_seconds: _Optional[float] = ..., checkpoints_kept: _Optional[int] = ..., checkpoint_bytes: _Optional[int] = ..., sync: _Optional[_Union[Sync, _Mapping]] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., dense_schedule: _Optional[_Union[Schedule, _Mapping]] = ..., labels: _Optional[_Iterable[str]] = ..., first_iteration: _Optional[int] = ..., auto_budget: _Optional[bool] = ..., dense_names: _Optional[_Iterable[str]] = ..., rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., dense_sum: _Optional[_Union[DenseSum, _Mapping]] = ..., row_ttls: _Optional[_Iterable[int]] = ..., admit_afters: _Optional[_Iterable[int]] = ..., negatives: _Optional[_Union[Negatives, _Mapping]] = ..., sites: _Optional[_Iterable[str]] = ..., by_reference: _Optional[bool] = ..., submitters: _Optional[int] = ..., continues_stream: _Optional[bool] = ...) -> None: ...

class Negatives(_message.Message):
    __slots__ = ("name", "table", "ids", "count", "chunk")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    name: str
    table: int
    ids: int
    count: int
    chunk: int
    def __init__(self, name: _Optional[str] = ..., table: _Optional[int] = ..., ids: _Optional[int] = ..., count: _Optional[int] = ..., chunk: _Optional[int] = ...) -> None: ...

class MechanismOptions(_message.Message):
    __slots__ = ("esd", "joint", "hash", "laia")
    class Esd(_message.Message):
        __slots__ = ("alpha", "auto_alpha", "criterion", "solver", "eviction_term")
        ALPHA_FIELD_NUMBER: _ClassVar[int]
        AUTO_ALPHA_FIELD_NUMBER: _ClassVar[int]
        CRITERION_FIELD_NUMBER: _ClassVar[int]
        SOLVER_FIELD_NUMBER: _ClassVar[int]
        EVICTION_TERM_FIELD_NUMBER: _ClassVar[int]
        alpha: float
        auto_alpha: bool
        criterion: Criterion
        solver: str
        eviction_term: bool
        def __init__(self, alpha: _Optional[float] = ..., auto_alpha: _Optional[bool] = ..., criterion: _Optional[_Union[Criterion, str]] = ..., solver: _Optional[str] = ..., eviction_term: _Optional[bool] = ...) -> None: ...
    class Joint(_message.Message):
        __slots__ = ("horizon",)
        HORIZON_FIELD_NUMBER: _ClassVar[int]
        horizon: int
        def __init__(self, horizon: _Optional[int] = ...) -> None: ...
    class Hash(_message.Message):
        __slots__ = ("hash_field",)
        HASH_FIELD_FIELD_NUMBER: _ClassVar[int]
        hash_field: int
        def __init__(self, hash_field: _Optional[int] = ...) -> None: ...
    class Laia(_message.Message):
        __slots__ = ("laia_reading",)
        class Reading(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            READING_UNSPECIFIED: _ClassVar[MechanismOptions.Laia.Reading]
            READING_TEXT: _ClassVar[MechanismOptions.Laia.Reading]
            READING_CODE: _ClassVar[MechanismOptions.Laia.Reading]
        READING_UNSPECIFIED: MechanismOptions.Laia.Reading
        READING_TEXT: MechanismOptions.Laia.Reading
        READING_CODE: MechanismOptions.Laia.Reading
        LAIA_READING_FIELD_NUMBER: _ClassVar[int]
        laia_reading: MechanismOptions.Laia.Reading
        def __init__(self, laia_reading: _Optional[_Union[MechanismOptions.Laia.Reading, str]] = ...) -> None: ...
    ESD_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    LAIA_FIELD_NUMBER: _ClassVar[int]
    esd: MechanismOptions.Esd
    joint: MechanismOptions.Joint
    hash: MechanismOptions.Hash
    laia: MechanismOptions.Laia
    def __init__(self, esd: _Optional[_Union[MechanismOptions.Esd, _Mapping]] = ..., joint: _Optional[_Union[MechanismOptions.Joint, _Mapping]] = ..., hash: _Optional[_Union[MechanismOptions.Hash, _Mapping]] = ..., laia: _Optional[_Union[MechanismOptions.Laia, _Mapping]] = ...) -> None: ...

class Sync(_message.Message):
    __slots__ = ("on_demand", "full", "write_through", "proactive", "replicated", "bounded", "none")
    class OnDemand(_message.Message):
        __slots__ = ("direct",)
        DIRECT_FIELD_NUMBER: _ClassVar[int]
        direct: bool
        def __init__(self, direct: _Optional[bool] = ...) -> None: ...
    class Full(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class WriteThrough(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Proactive(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Replicated(_message.Message):
        __slots__ = ("rows",)
        ROWS_FIELD_NUMBER: _ClassVar[int]
        rows: int
        def __init__(self, rows: _Optional[int] = ...) -> None: ...
    class Bounded(_message.Message):
        __slots__ = ("pull", "push")
        PULL_FIELD_NUMBER: _ClassVar[int]
        PUSH_FIELD_NUMBER: _ClassVar[int]
        pull: int
        push: int
        def __init__(self, pull: _Optional[int] = ..., push: _Optional[int] = ...) -> None: ...
    class Uncached(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    ON_DEMAND_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    WRITE_THROUGH_FIELD_NUMBER: _ClassVar[int]
    PROACTIVE_FIELD_NUMBER: _ClassVar[int]
    REPLICATED_FIELD_NUMBER: _ClassVar[int]
    BOUNDED_FIELD_NUMBER: _ClassVar[int]
    NONE_FIELD_NUMBER: _ClassVar[int]
    on_demand: Sync.OnDemand
    full: Sync.Full
    write_through: Sync.WriteThrough
    proactive: Sync.Proactive
    replicated: Sync.Replicated
    bounded: Sync.Bounded
    none: Sync.Uncached
    def __init__(self, on_demand: _Optional[_Union[Sync.OnDemand, _Mapping]] = ..., full: _Optional[_Union[Sync.Full, _Mapping]] = ..., write_through: _Optional[_Union[Sync.WriteThrough, _Mapping]] = ..., proactive: _Optional[_Union[Sync.Proactive, _Mapping]] = ..., replicated: _Optional[_Union[Sync.Replicated, _Mapping]] = ..., bounded: _Optional[_Union[Sync.Bounded, _Mapping]] = ..., none: _Optional[_Union[Sync.Uncached, _Mapping]] = ...) -> None: ...

class DenseSum(_message.Message):
    __slots__ = ("all_reduce", "server", "low_rank", "auto", "every")
    class Auto(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class AllReduce(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Server(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class LowRank(_message.Message):
        __slots__ = ("rank",)
        RANK_FIELD_NUMBER: _ClassVar[int]
        rank: int
        def __init__(self, rank: _Optional[int] = ...) -> None: ...
    class Every(_message.Message):
        __slots__ = ("iterations",)
        ITERATIONS_FIELD_NUMBER: _ClassVar[int]
        iterations: int
        def __init__(self, iterations: _Optional[int] = ...) -> None: ...
    ALL_REDUCE_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    LOW_RANK_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    all_reduce: DenseSum.AllReduce
    server: DenseSum.Server
    low_rank: DenseSum.LowRank
    auto: DenseSum.Auto
    every: DenseSum.Every
    def __init__(self, all_reduce: _Optional[_Union[DenseSum.AllReduce, _Mapping]] = ..., server: _Optional[_Union[DenseSum.Server, _Mapping]] = ..., low_rank: _Optional[_Union[DenseSum.LowRank, _Mapping]] = ..., auto: _Optional[_Union[DenseSum.Auto, _Mapping]] = ..., every: _Optional[_Union[DenseSum.Every, _Mapping]] = ...) -> None: ...

class WorkloadLimits(_message.Message):
    __slots__ = ("least", "most")
    LEAST_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    least: int
    most: int
    def __init__(self, least: _Optional[int] = ..., most: _Optional[int] = ...) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobSpec
    def __init__(self, job: _Optional[_Union[JobSpec, _Mapping]] = ...) -> None: ...

class CreateJobResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: _Optional[bool] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    def __init__(self, cancelled: _Optional[bool] = ...) -> None: ...

class RegisterWorkerRequest(_message.Message):
    __slots__ = ("worker", "bandwidth_bytes_per_second", "cache_rows", "address", "instance", "least_samples", "most_samples", "wait_seconds", "lan_bytes_per_second", "site", "may_rest")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    CACHE_ROWS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LEAST_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    MOST_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LAN_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    MAY_REST_FIELD_NUMBER: _ClassVar[int]
    worker: str
    bandwidth_bytes_per_second: float
    cache_rows: int
    address: str
    instance: str
    least_samples: int
    most_samples: int
    wait_seconds: float
    lan_bytes_per_second: float
    site: str
    may_rest: bool
    def __init__(self, worker: _Optional[str] = ..., bandwidth_bytes_per_second: _Optional[float] = ..., cache_rows: _Optional[int] = ..., address: _Optional[str] = ..., instance: _Optional[str] = ..., least_samples: _Optional[int] = ..., most_samples: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., lan_bytes_per_second: _Optional[float] = ..., site: _Optional[str] = ..., may_rest: _Optional[bool] = ...) -> None: ...

class RegisterWorkerResponse(_message.Message):
    __slots__ = ("lease_id", "heartbeat_seconds")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    heartbeat_seconds: float
    def __init__(self, lease_id: _Optional[str] = ..., heartbeat_seconds: _Optional[float] = ...) -> None: ...

class AttendRequest(_message.Message):
    __slots__ = ("sequence", "iterations", "attendance", "heartbeat", "flush", "failure")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    ATTENDANCE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    iterations: _containers.RepeatedCompositeFieldContainer[IterationReport]
    attendance: Attendance
    heartbeat: WorkerPhase
    flush: FlushReport
    failure: FailureReport
    def __init__(self, sequence: _Optional[int] = ..., iterations: _Optional[_Iterable[_Union[IterationReport, _Mapping]]] = ..., attendance: _Optional[_Union[Attendance, _Mapping]] = ..., heartbeat: _Optional[_Union[WorkerPhase, str]] = ..., flush: _Optional[_Union[FlushReport, _Mapping]] = ..., failure: _Optional[_Union[FailureReport, _Mapping]] = ...) -> None: ...

class Attendance(_message.Message):
    __slots__ = ("lease_id", "from_iteration", "epoch")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_ITERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    from_iteration: int
    epoch: int
    def __init__(self, lease_id: _Optional[str] = ..., from_iteration: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class AttendResponse(_message.Message):
    __slots__ = ("received", "refusals", "plans", "membership", "flush", "end", "reload", "piece")
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    PLANS_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    RELOAD_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    received: int
    refusals: _containers.RepeatedCompositeFieldContainer[_common_pb2.Refusal]
    plans: _containers.RepeatedCompositeFieldContainer[IterationPlan]
    membership: Membership
    flush: FlushPlan
    end: EndOfStream
    reload: Reload
    piece: Piece
    def __init__(self, received: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[_common_pb2.Refusal, _Mapping]]] = ..., plans: _Optional[_Iterable[_Union[IterationPlan, _Mapping]]] = ..., membership: _Optional[_Union[Membership, _Mapping]] = ..., flush: _Optional[_Union[FlushPlan, _Mapping]] = ..., end: _Optional[_Union[EndOfStream, _Mapping]] = ..., reload: _Optional[_Union[Reload, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("data", "left")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    left: int
    def __init__(self, data: _Optional[bytes] = ..., left: _Optional[int] = ...) -> None: ...

class FailureReport(_message.Message):
    __slots__ = ("epoch", "cause", "fatal")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    FATAL_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    cause: str
    fatal: bool
    def __init__(self, epoch: _Optional[int] = ..., cause: _Optional[str] = ..., fatal: _Optional[bool] = ...) -> None: ...

class TransferCounts(_message.Message):
    __slots__ = ("miss_pull", "update_push", "evict_push", "flush_push", "bytes_pulled", "bytes_pushed", "bytes_reduced", "direct_push", "bytes_direct", "link_rows_up", "link_rows_down", "link_gradients_up", "link_gradients_down", "link_dense_up", "link_dense_down", "link_plans_up", "link_plans_down", "link_other_up", "link_other_down", "link_framing_up", "link_framing_down", "initial_pull")
    MISS_PULL_FIELD_NUMBER: _ClassVar[int]
    UPDATE_PUSH_FIELD_NUMBER: _ClassVar[int]
    EVICT_PUSH_FIELD_NUMBER: _ClassVar[int]
    FLUSH_PUSH_FIELD_NUMBER: _ClassVar[int]
    BYTES_PULLED_FIELD_NUMBER: _ClassVar[int]
    BYTES_PUSHED_FIELD_NUMBER: _ClassVar[int]
    BYTES_REDUCED_FIELD_NUMBER: _ClassVar[int]
    DIRECT_PUSH_FIELD_NUMBER: _ClassVar[int]
    BYTES_DIRECT_FIELD_NUMBER: _ClassVar[int]
    LINK_ROWS_UP_FIELD_NUMBER: _ClassVar[int]
    LINK_ROWS_DOWN_FIELD_NUMBER: _ClassVar[int]
    LINK_GRADIENTS_UP_FIELD_NUMBER: _ClassVar[int]
    LINK_GRADIENTS_DOWN_FIELD_NUMBER: _ClassVar[int]
    LINK_DENSE_UP_FIELD_NUMBER: _ClassVar[int]
    LINK_DENSE_DOWN_FIELD_NUMBER: _ClassVar[int]
    LINK_PLANS_UP_FIELD_NUMBER: _ClassVar[int]
    LINK_PLANS_DOWN_FIELD_NUMBER: _ClassVar[int]
    LINK_OTHER_UP_FIELD_NUMBER: _ClassVar[int]
    LINK_OTHER_DOWN_FIELD_NUMBER: _ClassVar[int]
    LINK_FRAMING_UP_FIELD_NUMBER: _ClassVar[int]
    LINK_FRAMING_DOWN_FIELD_NUMBER: _ClassVar[int]
    INITIAL_PULL_FIELD_NUMBER: _ClassVar[int]
    miss_pull: int
    update_push: int
    evict_push: int
    flush_push: int
    bytes_pulled: int
    bytes_pushed: int
    bytes_reduced: int
    direct_push: int
    bytes_direct: int
    link_rows_up: int
    link_rows_down: int
    link_gradients_up: int
    link_gradients_down: int
    link_dense_up: int
    link_dense_down: int
    link_plans_up: int
    link_plans_down: int
    link_other_up: int
    link_other_down: int
    link_framing_up: int
    link_framing_down: int
    initial_pull: int
    def __init__(self, miss_pull: _Optional[int] = ..., update_push: _Optional[int] = ..., evict_push: _Optional[int] = ..., flush_push: _Optional[int] = ..., bytes_pulled: _Optional[int] = ..., bytes_pushed: _Optional[int] = ..., bytes_reduced: _Optional[int] = ..., direct_push: _Optional[int] = ..., bytes_direct: _Optional[int] = ..., link_rows_up: _Optional[int] = ..., link_rows_down: _Optional[int] = ..., link_gradients_up: _Optional[int] = ..., link_gradients_down: _Optional[int] = ..., link_dense_up: _Optional[int] = ..., link_dense_down: _Optional[int] = ..., link_plans_up: _Optional[int] = ..., link_plans_down: _Optional[int] = ..., link_other_up: _Optional[int] = ..., link_other_down: _Optional[int] = ..., link_framing_up: _Optional[int] = ..., link_framing_down: _Optional[int] = ..., initial_pull: _Optional[int] = ...) -> None: ...

class PhaseTimes(_message.Message):
    __slots__ = ("plan_wait", "push", "pull", "compute", "all_reduce", "update")
    PLAN_WAIT_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    PULL_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_FIELD_NUMBER: _ClassVar[int]
    ALL_REDUCE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    plan_wait: float
    push: float
    pull: float
    compute: float
    all_reduce: float
    update: float
    def __init__(self, plan_wait: _Optional[float] = ..., push: _Optional[float] = ..., pull: _Optional[float] = ..., compute: _Optional[float] = ..., all_reduce: _Optional[float] = ..., update: _Optional[float] = ...) -> None: ...

class IterationReport(_message.Message):
    __slots__ = ("epoch", "iteration", "loss_sum", "score_bins", "labels", "transfers", "phases", "seconds", "measured_bandwidth_bytes_per_second", "labels_per_sample", "groups", "label_loss_sums", "drift")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    LOSS_SUM_FIELD_NUMBER: _ClassVar[int]
    SCORE_BINS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_BANDWIDTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LABELS_PER_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LABEL_LOSS_SUMS_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    iteration: int
    loss_sum: float
    score_bins: bytes
    labels: bytes
    transfers: TransferCounts
    phases: PhaseTimes
    seconds: float
    measured_bandwidth_bytes_per_second: float
    labels_per_sample: int
    groups: bytes
    label_loss_sums: _containers.RepeatedScalarFieldContainer[float]
    drift: float
    def __init__(self, epoch: _Optional[int] = ..., iteration: _Optional[int] = ..., loss_sum: _Optional[float] = ..., score_bins: _Optional[bytes] = ..., labels: _Optional[bytes] = ..., transfers: _Optional[_Union[TransferCounts, _Mapping]] = ..., phases: _Optional[_Union[PhaseTimes, _Mapping]] = ..., seconds: _Optional[float] = ..., measured_bandwidth_bytes_per_second: _Optional[float] = ..., labels_per_sample: _Optional[int] = ..., groups: _Optional[bytes] = ..., label_loss_sums: _Optional[_Iterable[float]] = ..., drift: _Optional[float] = ...) -> None: ...

class FlushReport(_message.Message):
    __slots__ = ("epoch", "iteration", "transfers", "dense_checksum", "failure", "checkpoint")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    DENSE_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    iteration: int
    transfers: TransferCounts
    dense_checksum: str
    failure: str
    checkpoint: bool
    def __init__(self, epoch: _Optional[int] = ..., iteration: _Optional[int] = ..., transfers: _Optional[_Union[TransferCounts, _Mapping]] = ..., dense_checksum: _Optional[str] = ..., failure: _Optional[str] = ..., checkpoint: _Optional[bool] = ...) -> None: ...

class PutGroupKeyRequest(_message.Message):
    __slots__ = ("lease_id", "epoch", "key", "value")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    epoch: int
    key: str
    value: bytes
    def __init__(self, lease_id: _Optional[str] = ..., epoch: _Optional[int] = ..., key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class PutGroupKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetGroupKeyRequest(_message.Message):
    __slots__ = ("lease_id", "epoch", "key")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    epoch: int
    key: str
    def __init__(self, lease_id: _Optional[str] = ..., epoch: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class GetGroupKeyResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("job", "batch", "end", "position", "part", "instance", "stream")
    JOB_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    job: str
    batch: _common_pb2.SampleBatch
    end: bool
    position: int
    part: int
    instance: int
    stream: str
    def __init__(self, job: _Optional[str] = ..., batch: _Optional[_Union[_common_pb2.SampleBatch, _Mapping]] = ..., end: _Optional[bool] = ..., position: _Optional[int] = ..., part: _Optional[int] = ..., instance: _Optional[int] = ..., stream: _Optional[str] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("samples", "durable", "columns", "longest_batch", "source")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_BATCH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    samples: int
    durable: bool
    columns: SampleColumns
    longest_batch: int
    source: _common_pb2.SourcePosition
    def __init__(self, samples: _Optional[int] = ..., durable: _Optional[bool] = ..., columns: _Optional[_Union[SampleColumns, _Mapping]] = ..., longest_batch: _Optional[int] = ..., source: _Optional[_Union[_common_pb2.SourcePosition, _Mapping]] = ...) -> None: ...

class SampleColumns(_message.Message):
    __slots__ = ("features", "labels", "dense_names", "rules")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    DENSE_NAMES_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[Feature]
    labels: _containers.RepeatedScalarFieldContainer[str]
    dense_names: _containers.RepeatedScalarFieldContainer[str]
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    def __init__(self, features: _Optional[_Iterable[_Union[Feature, _Mapping]]] = ..., labels: _Optional[_Iterable[str]] = ..., dense_names: _Optional[_Iterable[str]] = ..., rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ...) -> None: ...

class Membership(_message.Message):
    __slots__ = ("epoch", "slot", "workers", "job", "members", "more_members", "iteration", "peers", "claimant")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MORE_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    CLAIMANT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    slot: int
    workers: int
    job: JobSpec
    members: int
    more_members: int
    iteration: int
    peers: _containers.RepeatedScalarFieldContainer[str]
    claimant: bytes
    def __init__(self, epoch: _Optional[int] = ..., slot: _Optional[int] = ..., workers: _Optional[int] = ..., job: _Optional[_Union[JobSpec, _Mapping]] = ..., members: _Optional[int] = ..., more_members: _Optional[int] = ..., iteration: _Optional[int] = ..., peers: _Optional[_Iterable[str]] = ..., claimant: _Optional[bytes] = ...) -> None: ...

class Reload(_message.Message):
    __slots__ = ("checkpoint", "rows", "outdated", "dense_checksum")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    OUTDATED_FIELD_NUMBER: _ClassVar[int]
    DENSE_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    rows: Transfers
    outdated: Transfers
    dense_checksum: str
    def __init__(self, checkpoint: _Optional[int] = ..., rows: _Optional[_Union[Transfers, _Mapping]] = ..., outdated: _Optional[_Union[Transfers, _Mapping]] = ..., dense_checksum: _Optional[str] = ...) -> None: ...

class Transfers(_message.Message):
    __slots__ = ("trained", "ids", "slots", "versions", "early")
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    EARLY_FIELD_NUMBER: _ClassVar[int]
    trained: bytes
    ids: bytes
    slots: bytes
    versions: bytes
    early: int
    def __init__(self, trained: _Optional[bytes] = ..., ids: _Optional[bytes] = ..., slots: _Optional[bytes] = ..., versions: _Optional[bytes] = ..., early: _Optional[int] = ...) -> None: ...

class GradientTransfers(_message.Message):
    __slots__ = ("transfers", "contributors", "steps")
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    transfers: Transfers
    contributors: bytes
    steps: bytes
    def __init__(self, transfers: _Optional[_Union[Transfers, _Mapping]] = ..., contributors: _Optional[bytes] = ..., steps: _Optional[bytes] = ...) -> None: ...

class IterationPlan(_message.Message):
    __slots__ = ("epoch", "iteration", "batch_size", "update_rows", "update_gradients", "evict_rows", "evict_gradients", "drops", "pulls", "samples", "fields", "dense_features", "positions", "first_id", "unique_ids", "unique_slots", "unique_versions", "unique_contributors", "inverse", "dense", "labels", "forgotten", "forgotten_below", "discards", "labels_per_sample", "lengths", "weights", "groups", "reduced", "direct_pushes", "direct_push_peers", "direct_pulls", "direct_pull_peers", "first_initial_id", "initial_ids", "lists", "trace_parent", "references", "dense_role")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_ROWS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    EVICT_ROWS_FIELD_NUMBER: _ClassVar[int]
    EVICT_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    PULLS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    DENSE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_IDS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    INVERSE_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_BELOW_FIELD_NUMBER: _ClassVar[int]
    DISCARDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_PER_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    REDUCED_FIELD_NUMBER: _ClassVar[int]
    DIRECT_PUSHES_FIELD_NUMBER: _ClassVar[int]
    DIRECT_PUSH_PEERS_FIELD_NUMBER: _ClassVar[int]
    DIRECT_PULLS_FIELD_NUMBER: _ClassVar[int]
    DIRECT_PULL_PEERS_FIELD_NUMBER: _ClassVar[int]
    FIRST_INITIAL_ID_FIELD_NUMBER: _ClassVar[int]
    INITIAL_IDS_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    TRACE_PARENT_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    DENSE_ROLE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    iteration: int
    batch_size: int
    update_rows: Transfers
    update_gradients: GradientTransfers
    evict_rows: Transfers
    evict_gradients: GradientTransfers
    drops: Transfers
    pulls: Transfers
    samples: int
    fields: int
    dense_features: int
    positions: bytes
    first_id: int
    unique_ids: bytes
    unique_slots: bytes
    unique_versions: bytes
    unique_contributors: bytes
    inverse: bytes
    dense: bytes
    labels: bytes
    forgotten: bytes
    forgotten_below: int
    discards: Transfers
    labels_per_sample: int
    lengths: bytes
    weights: bytes
    groups: bytes
    reduced: bytes
    direct_pushes: bytes
    direct_push_peers: bytes
    direct_pulls: bytes
    direct_pull_peers: bytes
    first_initial_id: int
    initial_ids: bytes
    lists: int
    trace_parent: str
    references: bytes
    dense_role: DenseRole
    def __init__(self, epoch: _Optional[int] = ..., iteration: _Optional[int] = ..., batch_size: _Optional[int] = ..., update_rows: _Optional[_Union[Transfers, _Mapping]] = ..., update_gradients: _Optional[_Union[GradientTransfers, _Mapping]] = ..., evict_rows: _Optional[_Union[Transfers, _Mapping]] = ..., evict_gradients: _Optional[_Union[GradientTransfers, _Mapping]] = ..., drops: _Optional[_Union[Transfers, _Mapping]] = ..., pulls: _Optional[_Union[Transfers, _Mapping]] = ..., samples: _Optional[int] = ..., fields: _Optional[int] = ..., dense_features: _Optional[int] = ..., positions: _Optional[bytes] = ..., first_id: _Optional[int] = ..., unique_ids: _Optional[bytes] = ..., unique_slots: _Optional[bytes] = ..., unique_versions: _Optional[bytes] = ..., unique_contributors: _Optional[bytes] = ..., inverse: _Optional[bytes] = ..., dense: _Optional[bytes] = ..., labels: _Optional[bytes] = ..., forgotten: _Optional[bytes] = ..., forgotten_below: _Optional[int] = ..., discards: _Optional[_Union[Transfers, _Mapping]] = ..., labels_per_sample: _Optional[int] = ..., lengths: _Optional[bytes] = ..., weights: _Optional[bytes] = ..., groups: _Optional[bytes] = ..., reduced: _Optional[bytes] = ..., direct_pushes: _Optional[bytes] = ..., direct_push_peers: _Optional[bytes] = ..., direct_pulls: _Optional[bytes] = ..., direct_pull_peers: _Optional[bytes] = ..., first_initial_id: _Optional[int] = ..., initial_ids: _Optional[bytes] = ..., lists: _Optional[int] = ..., trace_parent: _Optional[str] = ..., references: _Optional[bytes] = ..., dense_role: _Optional[_Union[DenseRole, str]] = ...) -> None: ...

class FlushPlan(_message.Message):
    __slots__ = ("epoch", "iteration", "rows", "gradients", "checkpoint", "stores_dense")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    STORES_DENSE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    iteration: int
    rows: Transfers
    gradients: GradientTransfers
    checkpoint: bool
    stores_dense: bool
    def __init__(self, epoch: _Optional[int] = ..., iteration: _Optional[int] = ..., rows: _Optional[_Union[Transfers, _Mapping]] = ..., gradients: _Optional[_Union[GradientTransfers, _Mapping]] = ..., checkpoint: _Optional[bool] = ..., stores_dense: _Optional[bool] = ...) -> None: ...

class EndOfStream(_message.Message):
    __slots__ = ("iterations",)
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    iterations: int
    def __init__(self, iterations: _Optional[int] = ...) -> None: ...

class WorkerState(_message.Message):
    __slots__ = ("worker", "slot", "bandwidth_bytes_per_second", "cache_rows", "iterations", "transfers", "phases", "seconds_since_heartbeat", "address", "measured_bandwidth_bytes_per_second", "workload", "late_iterations", "held_back", "rests")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    CACHE_ROWS_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_SINCE_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_BANDWIDTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    LATE_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_FIELD_NUMBER: _ClassVar[int]
    RESTS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    slot: int
    bandwidth_bytes_per_second: float
    cache_rows: int
    iterations: int
    transfers: TransferCounts
    phases: PhaseTimes
    seconds_since_heartbeat: float
    address: str
    measured_bandwidth_bytes_per_second: float
    workload: int
    late_iterations: int
    held_back: int
    rests: bool
    def __init__(self, worker: _Optional[str] = ..., slot: _Optional[int] = ..., bandwidth_bytes_per_second: _Optional[float] = ..., cache_rows: _Optional[int] = ..., iterations: _Optional[int] = ..., transfers: _Optional[_Union[TransferCounts, _Mapping]] = ..., phases: _Optional[_Union[PhaseTimes, _Mapping]] = ..., seconds_since_heartbeat: _Optional[float] = ..., address: _Optional[str] = ..., measured_bandwidth_bytes_per_second: _Optional[float] = ..., workload: _Optional[int] = ..., late_iterations: _Optional[int] = ..., held_back: _Optional[int] = ..., rests: _Optional[bool] = ...) -> None: ...

class ShadowCost(_message.Message):
    __slots__ = ("mechanism", "iterations", "cost_seconds")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    COST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    iterations: int
    cost_seconds: float
    def __init__(self, mechanism: _Optional[str] = ..., iterations: _Optional[int] = ..., cost_seconds: _Optional[float] = ...) -> None: ...

class Recovery(_message.Message):
    __slots__ = ("cause", "epoch", "iterations_redone", "seconds")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_REDONE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    cause: str
    epoch: int
    iterations_redone: int
    seconds: float
    def __init__(self, cause: _Optional[str] = ..., epoch: _Optional[int] = ..., iterations_redone: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class Quality(_message.Message):
    __slots__ = ("loss", "auc", "normalised_entropy", "calibration", "gauc")
    LOSS_FIELD_NUMBER: _ClassVar[int]
    AUC_FIELD_NUMBER: _ClassVar[int]
    NORMALISED_ENTROPY_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    GAUC_FIELD_NUMBER: _ClassVar[int]
    loss: float
    auc: float
    normalised_entropy: float
    calibration: float
    gauc: float
    def __init__(self, loss: _Optional[float] = ..., auc: _Optional[float] = ..., normalised_entropy: _Optional[float] = ..., calibration: _Optional[float] = ..., gauc: _Optional[float] = ...) -> None: ...

class Ranking(_message.Message):
    __slots__ = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")
    MRR_FIELD_NUMBER: _ClassVar[int]
    HITS_AT_1_FIELD_NUMBER: _ClassVar[int]
    HITS_AT_3_FIELD_NUMBER: _ClassVar[int]
    HITS_AT_10_FIELD_NUMBER: _ClassVar[int]
    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    def __init__(self, mrr: _Optional[float] = ..., hits_at_1: _Optional[float] = ..., hits_at_3: _Optional[float] = ..., hits_at_10: _Optional[float] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("iteration", "labels", "samples", "ranking")
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    iteration: int
    labels: _containers.RepeatedCompositeFieldContainer[Quality]
    samples: str
    ranking: Ranking
    def __init__(self, iteration: _Optional[int] = ..., labels: _Optional[_Iterable[_Union[Quality, _Mapping]]] = ..., samples: _Optional[str] = ..., ranking: _Optional[_Union[Ranking, _Mapping]] = ...) -> None: ...

class JobState(_message.Message):
    __slots__ = ("job", "phase", "failure", "samples_submitted", "iterations_planned", "iterations_confirmed", "training_seconds", "workers", "quality", "recent", "cost_seconds", "makespan_seconds", "expected_cost_seconds", "lookups", "hits", "forgotten_rows", "decision_median_seconds", "decision_p99_seconds", "shadow_costs", "shadows_left_out", "epoch", "resumed_from", "checkpoint", "recoveries", "evaluations", "staleness", "flushed_ahead", "labels", "recent_labels", "standstill", "expired_rows", "admitted_rows", "initial_reads", "dense_drift")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PHASE_UNSPECIFIED: _ClassVar[JobState.Phase]
        PHASE_WAITING_FOR_WORKERS: _ClassVar[JobState.Phase]
        PHASE_RUNNING: _ClassVar[JobState.Phase]
        PHASE_FLUSHING: _ClassVar[JobState.Phase]
        PHASE_FINISHED: _ClassVar[JobState.Phase]
        PHASE_FAILED: _ClassVar[JobState.Phase]
        PHASE_RECOVERING: _ClassVar[JobState.Phase]
    PHASE_UNSPECIFIED: JobState.Phase
    PHASE_WAITING_FOR_WORKERS: JobState.Phase
    PHASE_RUNNING: JobState.Phase
    PHASE_FLUSHING: JobState.Phase
    PHASE_FINISHED: JobState.Phase
    PHASE_FAILED: JobState.Phase
    PHASE_RECOVERING: JobState.Phase
    JOB_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_PLANNED_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    TRAINING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    QUALITY_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    COST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAKESPAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_COST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_ROWS_FIELD_NUMBER: _ClassVar[int]
    DECISION_MEDIAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DECISION_P99_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_COSTS_FIELD_NUMBER: _ClassVar[int]
    SHADOWS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FROM_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RECOVERIES_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_AHEAD_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RECENT_LABELS_FIELD_NUMBER: _ClassVar[int]
    STANDSTILL_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_ROWS_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_READS_FIELD_NUMBER: _ClassVar[int]
    DENSE_DRIFT_FIELD_NUMBER: _ClassVar[int]
    job: JobSpec
    phase: JobState.Phase
    failure: str
    samples_submitted: int
    iterations_planned: int
    iterations_confirmed: int
    training_seconds: float
    workers: _containers.RepeatedCompositeFieldContainer[WorkerState]
    quality: Quality
    recent: Quality
    cost_seconds: float
    makespan_seconds: float
    expected_cost_seconds: float
    lookups: int
    hits: int
    forgotten_rows: int
    decision_median_seconds: float
    decision_p99_seconds: float
    shadow_costs: _containers.RepeatedCompositeFieldContainer[ShadowCost]
    shadows_left_out: _containers.RepeatedScalarFieldContainer[str]
    epoch: int
    resumed_from: int
    checkpoint: int
    recoveries: _containers.RepeatedCompositeFieldContainer[Recovery]
    evaluations: _containers.RepeatedCompositeFieldContainer[Evaluation]
    staleness: Staleness
    flushed_ahead: int
    labels: _containers.RepeatedCompositeFieldContainer[Quality]
    recent_labels: _containers.RepeatedCompositeFieldContainer[Quality]
    standstill: str
    expired_rows: int
    admitted_rows: int
    initial_reads: int
    dense_drift: float
    def __init__(self, job: _Optional[_Union[JobSpec, _Mapping]] = ..., phase: _Optional[_Union[JobState.Phase, str]] = ..., failure: _Optional[str] = ..., samples_submitted: _Optional[int] = ..., iterations_planned: _Optional[int] = ..., iterations_confirmed: _Optional[int] = ..., training_seconds: _Optional[float] = ..., workers: _Optional[_Iterable[_Union[WorkerState, _Mapping]]] = ..., quality: _Optional[_Union[Quality, _Mapping]] = ..., recent: _Optional[_Union[Quality, _Mapping]] = ..., cost_seconds: _Optional[float] = ..., makespan_seconds: _Optional[float] = ..., expected_cost_seconds: _Optional[float] = ..., lookups: _Optional[int] = ..., hits: _Optional[int] = ..., forgotten_rows: _Optional[int] = ..., decision_median_seconds: _Optional[float] = ..., decision_p99_seconds: _Optional[float] = ..., shadow_costs: _Optional[_Iterable[_Union[ShadowCost, _Mapping]]] = ..., shadows_left_out: _Optional[_Iterable[str]] = ..., epoch: _Optional[int] = ..., resumed_from: _Optional[int] = ..., checkpoint: _Optional[int] = ..., recoveries: _Optional[_Iterable[_Union[Recovery, _Mapping]]] = ..., evaluations: _Optional[_Iterable[_Union[Evaluation, _Mapping]]] = ..., staleness: _Optional[_Union[Staleness, _Mapping]] = ..., flushed_ahead: _Optional[int] = ..., labels: _Optional[_Iterable[_Union[Quality, _Mapping]]] = ..., recent_labels: _Optional[_Iterable[_Union[Quality, _Mapping]]] = ..., standstill: _Optional[str] = ..., expired_rows: _Optional[int] = ..., admitted_rows: _Optional[int] = ..., initial_reads: _Optional[int] = ..., dense_drift: _Optional[float] = ...) -> None: ...

class Staleness(_message.Message):
    __slots__ = ("reads", "missing_updates", "most_missing")
    READS_FIELD_NUMBER: _ClassVar[int]
    MISSING_UPDATES_FIELD_NUMBER: _ClassVar[int]
    MOST_MISSING_FIELD_NUMBER: _ClassVar[int]
    reads: _containers.RepeatedScalarFieldContainer[int]
    missing_updates: int
    most_missing: int
    def __init__(self, reads: _Optional[_Iterable[int]] = ..., missing_updates: _Optional[int] = ..., most_missing: _Optional[int] = ...) -> None: ...
