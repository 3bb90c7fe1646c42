"""Every metric of the system. Services import the objects, and never prometheus_client.

Rules, held by a test: the prefix is `esd_` (`grpc_server_` for the metrics of every service), units are base units,
counters end in `_total`, labels are few and bounded: names of tables, operations, phases, mechanisms, solvers, methods
and codes, features and labels of a job (at most 64 labels), and worker slots (at most 128). A HELP text explains the
number and advises what to do about a bad one. A service shows only the metrics that it feeds (metrics_page.py).
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram, ProcessCollector

from esd.services.domain.sync.bounded import MOST_UPDATES
from esd.services.runtime.lane_metrics import LANES
from esd.services.runtime.quality_metrics import HELD_OUT, HELD_OUT_ITERATION, RECENT, TRAINED
from esd.services.runtime.registry import REGISTRY as REGISTRY  # noqa: PLC0414 - complete from here
from esd.services.runtime.registry import CountedHistogram
from esd.services.runtime.serving_metrics import SERVED_MODEL

PROCESS = ProcessCollector(registry=REGISTRY)  # memory, CPU time and open files of this process

# From a hash lookup to a stalled link.
_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

# --- every service ---------------------------------------------------------------------------------------------

RPCS_HANDLED = Counter(
    "grpc_server_handled_total",
    "Calls that ended, by method and status code. A rising share of codes other than OK: the service's log names "
    "each cause. Calls that gRPC refuses itself (too many at once, message too long) reach no handler and are not "
    "counted; the caller's error names the limit.",
    ("method", "code"),
    registry=REGISTRY,
)
RPC_SECONDS = Histogram(
    "grpc_server_handling_seconds",
    "Time from a call's arrival to the end of its handler, whole streams included. Exchange and "
    "Attend last as long as an epoch and WatchPlans as long as a job, so long is not wrong there; elsewhere look at "
    "CPU and the store.",
    ("method",),
    buckets=_SECONDS,
    registry=REGISTRY,
)

# --- dispatch --------------------------------------------------------------------------------------------------

TRANSFERS = Counter(
    "esd_embedding_transfers_total",
    "Embedding rows moved over each worker's link, by operation: miss_pull, update_push, evict_push, flush_push. "
    "Many evict_push: the caches are too small. Many update_push: samples that share rows land on different "
    "workers; compare mechanisms.",
    ("op", "worker"),
    registry=REGISTRY,
)
TRANSFER_BYTES = Counter(
    "esd_transfer_bytes_total",
    "Bytes moved over each worker's link, by operation: pull (requests for rows, and the rows), push, or reduce (the "
    "gradients of replicated rows, sent to another worker). Pulls and pushes are much more per iteration than rows x "
    "row size: calls are being repeated; look for UNAVAILABLE in grpc_server_handled_total.",
    ("op", "worker"),
    registry=REGISTRY,
)
INITIAL_PULLS = Counter(
    "esd_initial_pulls_total",
    "Rows of the miss pulls that were never trained, which each worker made itself: their values did not cross its "
    "link, but are in esd_transfer_cost_seconds_total. Most of miss_pull of esd_embedding_transfers_total for long: "
    "most ids come once or twice; --admit-after keeps them out of the table.",
    ("worker",),
    registry=REGISTRY,
)
DIRECT_ROWS = Counter(
    "esd_direct_rows_total",
    "Rows of the update pushes that each worker sent straight to the worker that trains them next (--direct). Few "
    "compared with update_push of esd_embedding_transfers_total: rows have several readers, and --direct saves little.",
    ("worker",),
    registry=REGISTRY,
)
DIRECT_BYTES = Counter(
    "esd_direct_bytes_total",
    "Bytes that each worker sent for these rows. They are counted in push of esd_transfer_bytes_total, too, and in "
    "pull of the worker that received them. They pass no parameter server.",
    ("worker",),
    registry=REGISTRY,
)
LINK_BYTES = Counter(
    "esd_link_bytes_total",
    "All that each worker's link carried, by kind (rows, gradients, dense, plans, other, framing) and direction: _up "
    "(sent) or _down. Near the link's speed: make the largest kind smaller.",
    ("op", "worker"),
    registry=REGISTRY,
)
TRANSFER_COST = Counter(
    "esd_transfer_cost_seconds_total",
    "Transmission cost of the plans in force: link seconds over all workers (ESD paper, eq. 4). It should grow "
    "clearly slower than esd_shadow_transfer_cost_seconds_total; if not, dispatch gains nothing on this stream.",
    ("mechanism",),
    registry=REGISTRY,
)
SHADOW_TRANSFER_COST = Counter(
    "esd_shadow_transfer_cost_seconds_total",
    "Cost of the same stream under another mechanism, simulated with caches of its own: compare it with "
    "esd_transfer_cost_seconds_total.",
    ("mechanism",),
    registry=REGISTRY,
)
CACHE_LOOKUPS = Counter(
    "esd_cache_lookups_total",
    "Distinct rows that workers needed per iteration: hit (latest version cached) or miss. A falling hit share: "
    "give the workers more cache rows, or a higher share of the exact solver (alpha).",
    ("result", "table"),
    registry=REGISTRY,
)
DISPATCH_SECONDS = Histogram(
    "esd_dispatch_seconds",
    "Time to decide one iteration, by phase: index, score, assign, plan, encode. It overlaps with training as long "
    "as the phases together take less than esd_iteration_seconds; if they do not, lower alpha.",
    ("phase",),
    buckets=_SECONDS,
    registry=REGISTRY,
)
LATE_DECISIONS = Counter(
    "esd_late_decisions_total",
    "Iterations whose plans came after the workers had trained all earlier ones, although the samples were there in "
    "time. A few do no harm; many of esd_iterations_total: give decisions a --budget (auto), a cheaper --mechanism, "
    "or more samples per iteration.",
    registry=REGISTRY,
)
DECISION_BUDGET = Gauge(
    "esd_decision_budget_seconds",
    "Time that the latest assignment had; infinite without --budget, and with --budget auto until workers have "
    "reported. Near 0 the mechanism does its least: give the dispatcher a faster processor, or iterations more "
    "samples.",
    registry=REGISTRY,
)
INFREQUENCY = Gauge(
    "esd_feature_infrequency_ratio",
    "The share of a feature's rows that occur less often than one worker trains samples (Herald's degree of "
    "infrequency), where laia-adaptive dispatches or is a shadow (ESD_DISPATCHER_SHADOW_MECHANISMS). Features near 0 "
    "gain nothing from dispatch; their scores are the first to be left out.",
    ("feature",),
    registry=REGISTRY,
)
PLAN_BYTES = Counter(
    "esd_dispatcher_plan_bytes_total",
    "Bytes of the plans of all workers, as they are sent. Over the rate of esd_iterations_total: bytes per iteration, "
    "which cross the links of the workers and are in no cost. Much of esd_transfer_bytes_total: rows are narrow; "
    "fewer, larger batches share more.",
    registry=REGISTRY,
)
MISSING_UPDATES = CountedHistogram(
    "esd_read_missing_updates",
    "Updates that were missing in the rows that training read, with --sync bounded: one worker's training of a row in "
    "one iteration is one update. Much mass at high numbers: the model learns from old rows; lower the bounds.",
    buckets=MOST_UPDATES,
    registry=REGISTRY,
)
FLUSHED_AHEAD = Counter(
    "esd_flushed_ahead_rows_total",
    "Rows and partial gradients that workers pushed before any worker needed them, with --sync proactive. They are "
    "among the update pushes of esd_embedding_transfers_total. Many of them: on demand fewer rows would move.",
    registry=REGISTRY,
)
SOLVER_SECONDS = Histogram(
    "esd_solver_seconds",
    "Time of one exact assignment (Opt). Grows with batch size x alpha: lower alpha when it is too long.",
    ("solver",),
    buckets=_SECONDS,
    registry=REGISTRY,
)
SOLVER_GAP = Gauge(
    "esd_solver_gap",
    "Cost of the latest exact assignment less its dual bound, in the units of its costs. 0 is the proof that it is "
    "optimal. Anything else fails the decision: report a defect, with the solver's name.",
    ("solver",),
    registry=REGISTRY,
)
KNOWN_ROWS = Gauge(
    "esd_known_rows",
    "Rows that the dispatcher knows, in all tables of the job, under the name of the first: the cached ones and some "
    "more. With --max-rows or --row-ttl these are all rows of the tables. At esd_row_limit the job ends: raise "
    "--max-rows before, or hash the ids to fewer. With --at-max-rows forget it stays there, see "
    "esd_forgotten_rows_total.",
    ("table",),
    registry=REGISTRY,
)
ROW_LIMIT = Gauge(
    "esd_row_limit",
    "Rows that the tables of the job may have (--max-rows), under the name of the first; absent without a limit.",
    ("table",),
    registry=REGISTRY,
)
FORGOTTEN_ROWS = Counter(
    "esd_forgotten_rows_total",
    "Rows that the plans remove from the tables, under the name of the first, to keep them within esd_row_limit "
    "(--at-max-rows forget); rows of repeated iterations count again after a recovery. If a forgotten id comes back, "
    "its training is lost: if many do, raise --max-rows.",
    ("table",),
    registry=REGISTRY,
)
EXPIRED_ROWS = Counter(
    "esd_expired_rows_total",
    "Rows that the plans remove from the tables, under the name of the first, because no iteration has trained them "
    "for their time to live (--row-ttl); rows of repeated iterations count again after a recovery. If an expired id "
    "comes back, its training is lost: if many do, raise --row-ttl.",
    ("table",),
    registry=REGISTRY,
)
ADMISSION = Counter(
    "esd_admission_ids_total",
    "With --admit-after, under the name of the first table, by operation: admitted (ids that came into the tables) and "
    "initial_read (ids of iterations that were not admitted yet, and were read as initial rows); repeated iterations "
    "count again after a recovery. Hardly any admitted: lower --admit-after, or the model learns little from ids.",
    ("table", "op"),
    registry=REGISTRY,
)
ADMISSION_ERROR = Gauge(
    "esd_admission_error_ratio",
    "Share of new ids that --admit-after admits at once, because other ids count for them in its fixed memory. It "
    "rises with the distinct ids of the stream; above 0.1 the option keeps fewer and fewer out: hash the ids to fewer.",
    registry=REGISTRY,
)
DISPATCH_WINDOW = Gauge(
    "esd_dispatch_window_iterations",
    "Iterations planned and not yet confirmed by all workers. At the job's window: the workers are the bottleneck, "
    "as it should be. Near 0 while training: the sample stream or the dispatcher is the bottleneck.",
    registry=REGISTRY,
)
PLAN_OBSERVERS = Gauge(
    "esd_plan_observers",
    "Observers that watch the plans of the job (WatchPlans). Near 64: more are refused; close those that nobody needs.",
    registry=REGISTRY,
)
PLAN_HISTORY = Gauge(
    "esd_plan_history_bytes",
    "Length of the published plans that are kept for observers, at most ESD_DISPATCHER_PLAN_HISTORY_BYTES. At this "
    "limit old plans are dropped, as they should be; raise it if observers that resume are refused.",
    registry=REGISTRY,
)
STANDSTILL = Gauge(
    "esd_standstill_seconds",
    "Time for which the job has trained nothing although samples wait, and has completed no flush or checkpoint; 0 "
    "while it progresses, or waits for samples. The dispatcher's log names the workers that it waits for, with phases.",
    registry=REGISTRY,
)
PART_WAIT_SECONDS = Gauge(
    "esd_part_wait_seconds",
    "Of a stream with several submitters: time for which it has waited for samples in this part's turn, while nobody "
    "submits the part or samples of other parts are there; 0 in the turns of others. Rising: the submitter of the part "
    "is away, or its source pauses.",
    ["part"],
    registry=REGISTRY,
)
PART_WAITING_BYTES = Gauge(
    "esd_part_waiting_bytes",
    "Of a stream with several submitters: samples of the part that have come before their turn, one message at most "
    "(ESD_DISPATCHER_MAX_REQUEST_BYTES). Its submitter waits meanwhile.",
    ["part"],
    registry=REGISTRY,
)
QUEUED_SAMPLES = Gauge(
    "esd_queued_samples",
    "Samples acknowledged and not planned yet. Always near 0 while workers wait for plans: the sample stream is the "
    "bottleneck. Always full: the workers or the dispatcher are the bottleneck, as it should be.",
    registry=REGISTRY,
)
LOGGED_SAMPLES = Gauge(
    "esd_logged_samples",
    "Acknowledged samples that no checkpoint covers yet: they are in the sample log, and in the dispatcher's memory. "
    "More than two checkpoint intervals' worth: checkpoints fail; the dispatcher's log has the cause.",
    registry=REGISTRY,
)
SOURCE_LAG = Gauge(
    "esd_source_lag_messages",
    "Messages that waited in the log (of Redis, Valkey, Kafka or NATS) behind the latest samples taken from it. NaN: "
    "the samples come from no log, or it cannot say. Rising for hours: samples arrive faster than they are trained; "
    "add workers before the log drops the oldest messages.",
    registry=REGISTRY,
)

JOB_PHASE = Gauge(
    "esd_job_phase",
    "1 for the present phase of the latest job, 0 for the others: waiting_for_workers, running, flushing, finished, "
    "failed, recovering. Waiting for long: workers are missing. Failed: DescribeJob and the dispatcher's log say why.",
    ("phase",),
    registry=REGISTRY,
)
HEARTBEAT_AGE = Gauge(
    "esd_worker_heartbeat_age_seconds",
    "Time since each worker's last heartbeat; 0 once the worker has finished. Beyond half of esd_lease_seconds the "
    "worker or its network is in trouble; beyond all of it the worker loses its slot.",
    ("worker",),
    registry=REGISTRY,
)
REFUSED_MESSAGES = Counter(
    "esd_refused_messages_total",
    "Messages of workers that the dispatcher refused without ending their streams, by status code. "
    "FAILED_PRECONDITION when an epoch ends is normal; any other means a worker of another version, or a defect: the "
    "dispatcher's log names each cause.",
    ("code",),
    registry=REGISTRY,
)
LATE_ITERATIONS = Counter(
    "esd_late_iterations_total",
    "Iterations that a worker delayed for longer than ESD_DISPATCHER_STRAGGLER_FACTOR times the median. A few do "
    "no harm; one worker again and again: look at its link and its load, or give it fewer samples "
    "(--workloads balanced).",
    ("worker",),
    registry=REGISTRY,
)
HELD_BACK = Gauge(
    "esd_worker_held_back_samples",
    "With balanced workloads, the samples per iteration beyond which a worker would get more if its cache had room for "
    "their rows; 0: it has room. Give it more cache rows, or accept that other workers train more.",
    ("worker",),
    registry=REGISTRY,
)
RESTS = Gauge(
    "esd_worker_rests",
    "1 while a worker has no samples and so gets no sums of dense gradients (--dense server), else 0. At 1 its link is "
    "quiet because nothing is to be sent; at 0 a quiet link has another cause, so look at the worker.",
    ("worker",),
    registry=REGISTRY,
)
RETURNS = Counter(
    "esd_worker_returns_total",
    "Returns of a worker that has rested, each of which carries all dense parameters with the state of their optimizer "
    "to it. Many of them cost its link: give it samples in every iteration, or none.",
    ("worker",),
    registry=REGISTRY,
)
LEASE = Gauge(
    "esd_lease_seconds",
    "Silence after which a worker loses its slot, as configured. Raise it if live workers lose their slots, lower it "
    "to notice dead ones earlier.",
    registry=REGISTRY,
)

# --- training --------------------------------------------------------------------------------------------------

ITERATIONS = Counter(
    "esd_iterations_total",
    "Iterations trained and confirmed by all workers. Flat while the job runs: a worker is stuck or away; DescribeJob "
    "shows whose heartbeat is old.",
    registry=REGISTRY,
)
ITERATION_SECONDS = Histogram(
    "esd_iteration_seconds",
    "Time of one iteration of one worker, by phase: plan_wait, push, pull, compute, all_reduce, update. Long "
    "plan_wait: the dispatcher is too slow. Long pull or push: the link is. Long all_reduce: another worker is.",
    ("phase",),
    buckets=_SECONDS,
    registry=REGISTRY,
)
WORKER_BANDWIDTH = Gauge(
    "esd_worker_bandwidth_bytes_per_second",
    "Bandwidth of each worker's link to the parameter server, as measured, or as registered until then. Far below "
    "the registered figure: the plans assume a faster link; repair the link or register its real bandwidth.",
    ("worker",),
    registry=REGISTRY,
)

# --- worker ----------------------------------------------------------------------------------------------------

DENSE_BYTES = Counter(
    "esd_dense_bytes_total",
    "Bytes that the worker sent and received to sum dense gradients, by way (--dense) and operation: sent or received. "
    "All-reduce: what its ring needs, by formula. Over the rate of esd_iterations_total: bytes per iteration, which "
    "share the worker's link with its rows; if they are most of it, --dense server sends less.",
    ("way", "op"),
    registry=REGISTRY,
)

# --- parameter server ------------------------------------------------------------------------------------------

TABLE_ROWS = Gauge(
    "esd_table_rows",
    "Rows stored, by table: all rows that were trained at least once. Times row bytes, this is the store's need; plan "
    "its memory by the growth.",
    ("table",),
    registry=REGISTRY,
)
PENDING_GRADIENTS = Gauge(
    "esd_pending_gradients",
    "Partial gradients that wait for their other contributors. Rising without end: a worker does not push its "
    "share; it is stuck or has died.",
    ("table",),
    registry=REGISTRY,
)
PENDING_GRADIENT_BYTES = Gauge(
    "esd_pending_gradient_bytes",
    "Memory that the partial gradients in esd_pending_gradients take. It should stay below the row bytes of a few "
    "batches; look at esd_pending_gradients when it does not.",
    ("table",),
    registry=REGISTRY,
)
WAITING_PULLS = Gauge(
    "esd_waiting_pulls",
    "Pulls that wait for a version that is not pushed yet. A few are normal; many for long: the slowest link holds "
    "up the others, or a worker has died.",
    ("table",),
    registry=REGISTRY,
)
EXCHANGE_FRAMES = Counter(
    "esd_exchange_frames_total",
    "Frames of exchanges that were answered to the end, by status code: pushes and pulls of workers. A rising share of "
    "codes other than OK: the parameter server's log names each cause.",
    ("code",),
    registry=REGISTRY,
)
EXCHANGE_BYTES = Counter(
    "esd_exchange_bytes_total",
    "Bytes of exchanges, by operation: received (pushes) or sent (pulled rows). If their rate nears the limit of "
    "the machine's network, more shards help.",
    ("op",),
    registry=REGISTRY,
)
EXCHANGE_SECONDS = Histogram(
    "esd_exchange_seconds",
    "Time from a frame's arrival to its last answer. Pulls wait for versions, so long is not wrong; long with few "
    "esd_waiting_pulls: look at esd_store_seconds and CPU.",
    buckets=_SECONDS,
    registry=REGISTRY,
)
SUM_BYTES = Counter(
    "esd_sum_bytes_total",
    "Bytes of the vectors that workers sum at the parameter server (--dense server), by operation: received "
    "(gradients) or sent (sums). Each worker sends and gets every value once: if the rate nears the limit of the "
    "machine's network, more shards help.",
    ("op",),
    registry=REGISTRY,
)
SUM_HELD_BYTES = Gauge(
    "esd_sum_held_bytes",
    "Memory of gradients that wait to be summed, and of sums that not all workers have. Near ESD_PS_MAX_SUM_BYTES for "
    "long: the sums of an iteration take as much, so a stream that breaks may end the epoch; or one worker's link is "
    "much slower than the others', whose gradients wait in the network then, which does no harm.",
    registry=REGISTRY,
)
STORE_UP = Gauge(
    "esd_store_up",
    "1 while the store answers, 0 while it does not; checked every two seconds. At 0 all pulls and pushes fail with "
    "UNAVAILABLE and are repeated: start Redis again, or repair the network to it.",
    registry=REGISTRY,
)
CHANGE_READERS = Gauge(
    "esd_change_readers",
    "Open calls of Changes: served models that follow tables of this server, a call for each table. 0 while a model "
    "should follow: see esd_model_fresh_connected there.",
    registry=REGISTRY,
)
STORE_CALLS = Gauge(
    "esd_store_calls",
    "Calls that a store thread works on or that wait for one; ESD_PS_MAX_CONCURRENT_RPCS bounds them. Above "
    "twice ESD_PS_STORE_THREADS for long: the store is the bottleneck; see esd_store_seconds.",
    registry=REGISTRY,
)
STORE_SECONDS = Histogram(
    "esd_store_seconds",
    "Time of one batch at the store, by operation: read or write. Long: the store or the network to it is overloaded; "
    "with Redis check its slow log and whether it is fsyncing on every write.",
    ("op",),
    buckets=_SECONDS,
    registry=REGISTRY,
)

# --- who shows what --------------------------------------------------------------------------------------------

EVERY_SERVICE = (PROCESS, RPCS_HANDLED, RPC_SECONDS)
BY_SERVICE = {
    "dispatcher": (
        TRANSFERS, INITIAL_PULLS, TRANSFER_BYTES, DIRECT_ROWS, DIRECT_BYTES, LINK_BYTES, TRANSFER_COST,
        SHADOW_TRANSFER_COST, CACHE_LOOKUPS, DISPATCH_SECONDS, LATE_DECISIONS, DECISION_BUDGET, INFREQUENCY, PLAN_BYTES,
        MISSING_UPDATES, FLUSHED_AHEAD, SOLVER_SECONDS, SOLVER_GAP, KNOWN_ROWS, FORGOTTEN_ROWS, EXPIRED_ROWS, ROW_LIMIT,
        ADMISSION, ADMISSION_ERROR, DISPATCH_WINDOW, STANDSTILL, PLAN_OBSERVERS, PLAN_HISTORY, QUEUED_SAMPLES,
        LOGGED_SAMPLES, SOURCE_LAG, PART_WAIT_SECONDS, PART_WAITING_BYTES, JOB_PHASE, HEARTBEAT_AGE, REFUSED_MESSAGES,
        LATE_ITERATIONS, HELD_BACK, RESTS, RETURNS, LEASE,
        ITERATIONS, ITERATION_SECONDS, WORKER_BANDWIDTH, *TRAINED.values(), *RECENT.values(), *HELD_OUT.values(),
        HELD_OUT_ITERATION,
    ),
    "worker": (DENSE_BYTES,),
    "ps": (
        TABLE_ROWS, PENDING_GRADIENTS, PENDING_GRADIENT_BYTES, WAITING_PULLS, EXCHANGE_FRAMES, EXCHANGE_BYTES,
        EXCHANGE_SECONDS, SUM_BYTES, SUM_HELD_BYTES, CHANGE_READERS, STORE_UP, STORE_CALLS, STORE_SECONDS,
    ),
    "model": SERVED_MODEL,
    "lanes": LANES,
}  # fmt: skip
