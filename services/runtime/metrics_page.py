"""The metrics page of a service: which metrics each kind of service shows, and their text."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from esd.services.runtime.http import Resource
from esd.services.runtime.metrics import (
    CACHE_LOOKUPS,
    DECISION_BUDGET,
    DENSE_BYTES,
    DIRECT_BYTES,
    DIRECT_ROWS,
    DISPATCH_SECONDS,
    DISPATCH_WINDOW,
    EXCHANGE_BYTES,
    EXCHANGE_FRAMES,
    EXCHANGE_SECONDS,
    EXPIRED_ROWS,
    FLUSHED_AHEAD,
    FORGOTTEN_ROWS,
    HEARTBEAT_AGE,
    HELD_BACK,
    HELD_OUT,
    HELD_OUT_ITERATION,
    INFREQUENCY,
    ITERATION_SECONDS,
    ITERATIONS,
    JOB_PHASE,
    KNOWN_ROWS,
    LATE_DECISIONS,
    LATE_ITERATIONS,
    LEASE,
    LOGGED_SAMPLES,
    MISSING_UPDATES,
    PENDING_GRADIENT_BYTES,
    PENDING_GRADIENTS,
    PLAN_BYTES,
    PLAN_HISTORY,
    PLAN_OBSERVERS,
    PROCESS,
    QUEUED_SAMPLES,
    RECENT,
    REFUSED_MESSAGES,
    ROW_LIMIT,
    RPC_SECONDS,
    RPCS_HANDLED,
    SHADOW_TRANSFER_COST,
    SOLVER_GAP,
    SOLVER_SECONDS,
    STANDSTILL,
    STORE_CALLS,
    STORE_SECONDS,
    STORE_UP,
    SUM_BYTES,
    SUM_HELD_BYTES,
    TABLE_ROWS,
    TRAINED,
    TRANSFER_BYTES,
    TRANSFER_COST,
    TRANSFERS,
    WAITING_PULLS,
    WORKER_BANDWIDTH,
)
from esd.services.runtime.settings import ServerSettings

EVERY_SERVICE = (PROCESS, RPCS_HANDLED, RPC_SECONDS)
BY_SERVICE = {
    "dispatcher": (
        TRANSFERS, TRANSFER_BYTES, DIRECT_ROWS, DIRECT_BYTES, TRANSFER_COST, SHADOW_TRANSFER_COST, CACHE_LOOKUPS,
        DISPATCH_SECONDS, LATE_DECISIONS, DECISION_BUDGET, INFREQUENCY, PLAN_BYTES, MISSING_UPDATES, FLUSHED_AHEAD,
        SOLVER_SECONDS, SOLVER_GAP, KNOWN_ROWS, FORGOTTEN_ROWS, EXPIRED_ROWS, ROW_LIMIT, DISPATCH_WINDOW, STANDSTILL,
        PLAN_OBSERVERS, PLAN_HISTORY, QUEUED_SAMPLES, LOGGED_SAMPLES, JOB_PHASE, HEARTBEAT_AGE, REFUSED_MESSAGES,
        LATE_ITERATIONS, HELD_BACK, LEASE, ITERATIONS, ITERATION_SECONDS, WORKER_BANDWIDTH, *TRAINED.values(),
        *RECENT.values(), *HELD_OUT.values(), HELD_OUT_ITERATION,
    ),
    "worker": (DENSE_BYTES,),
    "ps": (
        TABLE_ROWS, PENDING_GRADIENTS, PENDING_GRADIENT_BYTES, WAITING_PULLS, EXCHANGE_FRAMES, EXCHANGE_BYTES,
        EXCHANGE_SECONDS, SUM_BYTES, SUM_HELD_BYTES, STORE_UP, STORE_CALLS, STORE_SECONDS,
    ),
}  # fmt: skip


def metrics_page(settings: ServerSettings) -> Resource:
    """Returns the metrics page of one service, in the text format of Prometheus.

    A thread writes it: metrics with many labels are computed on request, and take milliseconds each.
    """
    shown = _shown(settings)
    return Resource(CONTENT_TYPE_LATEST, lambda: asyncio.to_thread(generate_latest, shown))


def _shown(settings: ServerSettings) -> CollectorRegistry:
    """Returns the metrics of one service."""
    registry = CollectorRegistry()
    for collector in (*EVERY_SERVICE, *BY_SERVICE.get(settings.section(), ())):
        registry.register(collector)
    return registry
