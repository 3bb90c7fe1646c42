"""The Grafana dashboard as code: `python3 -m deploy.grafana.dashboard` writes dashboards/esd.json.

A test compares the file with this code, and evaluates every query against a Prometheus that scrapes a running system.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "dashboards" / "esd.json"

_SOURCE = {"type": "prometheus", "uid": "prometheus"}
_WIDTH, _HEIGHT, _PER_ROW = 8, 7, 3  # Grafana's grid has 24 columns
_RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph: its title, its unit in Grafana's words, and pairs of (query, legend)."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    description: str = ""
    stacked: bool = False


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{_RATE}))"


def _mean(histogram: str, by: str) -> str:
    return f"{_rate(f'{histogram}_sum', by)} / {_rate(f'{histogram}_count', by)}"


def _p99(histogram: str, by: str) -> str:
    return f"histogram_quantile(0.99, {_rate(f'{histogram}_bucket', f'{by}, le')})"


_SCORED = "Each sample is scored before it is trained; the latest samples are the last 32,768."

_HELD_OUT = "On samples that are not trained, at the latest evaluation, by label."

ROWS: dict[str, Sequence[Panel]] = {
    "Training": (
        Panel("Iterations per second", "iops", [("esd:iterations:rate1m", "iterations")]),
        *(
            Panel(
                title,
                "none",
                [(f"esd_{figure}", "{{label}}, all samples"), (f"esd_recent_{figure}", "{{label}}, the latest")],
                description,
            )
            for title, figure, description in (
                ("Loss", "loss", _SCORED),
                ("AUC", "auc", _SCORED),
                ("GAUC", "gauc", "AUC within each group of samples, if the data name groups."),
                (
                    "Normalised entropy",
                    "normalised_entropy",
                    "The loss, divided by the loss of always predicting the mean label.",
                ),
                ("Calibration", "calibration", "Mean prediction, divided by the mean label; 1 is right."),
            )
        ),
        *(
            Panel(f"Held out: {title}", "none", [(f"esd_held_out_{figure}", "{{label}}")], _HELD_OUT)
            for title, figure in (
                ("loss", "loss"),
                ("AUC", "auc"),
                ("normalised entropy", "normalised_entropy"),
                ("calibration", "calibration"),
                ("GAUC", "gauc"),
            )
        ),
        Panel("Held out: evaluated at iteration", "none", [("esd_held_out_iteration", "iteration")]),
        Panel("Time of an iteration", "s", [(_mean("esd_iteration_seconds", "phase"), "{{phase}}")], stacked=True),
        Panel("Phase of the job", "none", [("esd_job_phase == 1", "{{phase}}")]),
        Panel(
            "Heartbeat age",
            "s",
            [("esd_worker_heartbeat_age_seconds", "worker {{worker}}"), ("esd_lease_seconds", "lease")],
        ),
    ),
    "Dispatch": (
        Panel(
            "Transmission cost, in force and in the shadow",
            "none",
            [
                (_rate("esd_transfer_cost_seconds_total", "mechanism"), "{{mechanism}} (in force)"),
                (_rate("esd_shadow_transfer_cost_seconds_total", "mechanism"), "{{mechanism}}"),
            ],
            "Link seconds per second. The distance to the other mechanisms is the gain of dispatch.",
        ),
        Panel("Cache hit ratio", "percentunit", [("esd:cache_hit_ratio:rate5m", "5 minutes")]),
        Panel(
            "Rows read, by the updates that they lack",
            "ops",
            [(_rate("esd_read_missing_updates_bucket", "le"), "at most {{le}}")],
            "With --sync bounded, per second.",
        ),
        Panel(
            "Rows pushed before any worker needs them",
            "ops",
            [(_rate("esd_flushed_ahead_rows_total"), "all workers")],
            "With --sync proactive, per second. They are among the update pushes.",
        ),
        Panel("Cache lookups per second", "ops", [(_rate("esd_cache_lookups_total", "table, result"), "{{result}}")]),
        Panel(
            "Decision against iteration",
            "s",
            [
                ("esd:decision_seconds:mean5m", "decision"),
                ("esd:iteration_seconds:mean5m", "iteration"),
                ("esd_decision_budget_seconds < Inf", "budget"),
            ],
            "Decisions do not delay training while they take less time than an iteration.",
        ),
        Panel("Decisions that came late", "ops", [(_rate("esd_late_decisions_total"), "iterations")]),
        Panel("Time of a decision", "s", [(_mean("esd_dispatch_seconds", "phase"), "{{phase}}")], stacked=True),
        Panel("Exact assignment, 99th percentile", "s", [(_p99("esd_solver_seconds", "solver"), "{{solver}}")]),
        Panel(
            "Gap of exact assignments",
            "none",
            [("esd_solver_gap", "{{solver}}")],
            "Cost minus dual bound: 0 proves the latest assignment optimal.",
        ),
        Panel(
            "Infrequent rows",
            "percentunit",
            [("esd_feature_infrequency_ratio", "{{feature}}")],
            "Share by feature, with laia-adaptive: at 0 dispatch can gain nothing.",
        ),
        Panel("Iterations planned ahead", "none", [("esd_dispatch_window_iterations", "iterations")]),
        Panel("Observers of plans", "none", [("esd_plan_observers", "observers")]),
        Panel("Plans kept for observers", "bytes", [("esd_plan_history_bytes", "kept")]),
        Panel("Standstill", "s", [("esd_standstill_seconds", "samples wait, and nothing is trained")]),
        Panel("Rows", "none", [("esd_known_rows", "trained"), ("esd_row_limit", "limit")]),
        Panel(
            "Rows that leave the table per second",
            "ops",
            [
                (_rate("esd_forgotten_rows_total"), "forgotten, the table is full"),
                (_rate("esd_expired_rows_total"), "expired"),
            ],
        ),
        Panel(
            "Admission of ids per second",
            "ops",
            [
                (_rate("esd_admission_ids_total", "op"), "{{op}}"),
            ],
            "With --admit-after: ids that come into the tables, and reads of ids that are not admitted yet.",
        ),
        Panel(
            "New ids admitted at once",
            "percentunit",
            [("esd_admission_error_ratio", "by mistake")],
            "The share that the fixed memory of --admit-after cannot keep out.",
        ),
        Panel(
            "Samples that wait",
            "none",
            [
                ("esd_queued_samples", "to be planned"),
                ("esd_logged_samples", "to be covered by a checkpoint"),
                ("esd_source_lag_messages", "messages in the log"),
            ],
        ),
        Panel(
            "Wait for a part of the stream",
            "s",
            [("esd_part_wait_seconds", "part {{part}}")],
            "With several submitters: the part that holds the others up, since its submitter is away or sends nothing.",
        ),
        Panel(
            "Samples before their turn",
            "bytes",
            [("esd_part_waiting_bytes", "part {{part}}")],
            "With several submitters: their samples at the dispatcher that wait for other parts.",
        ),
    ),
    "Links": (
        Panel(
            "Bytes of dense sums",
            "Bps",
            [(_rate("esd_dense_bytes_total", "way, op"), "{{way}}, {{op}}")],
            "By all workers. They share the workers' links with rows.",
        ),
        Panel(
            "All bytes, by kind",
            "Bps",
            [(_rate("esd_link_bytes_total", "op"), "{{op}}")],
            "Sent (_up) and received (_down) by all workers.",
            stacked=True,
        ),
        Panel("Everything on a link", "Bps", [(_rate("esd_link_bytes_total", "worker"), "worker {{worker}}")]),
        Panel("Operations per second", "ops", [(_rate("esd_embedding_transfers_total", "op"), "{{op}}")], stacked=True),
        Panel(
            "By worker",
            "ops",
            [
                (_rate("esd_embedding_transfers_total", "worker"), "worker {{worker}}"),
                (_rate("esd_direct_rows_total", "worker"), "worker {{worker}}, straight to workers"),
                (_rate("esd_initial_pulls_total", "worker"), "worker {{worker}}, never trained"),
            ],
        ),
        Panel(
            "Bytes",
            "Bps",
            [
                (_rate("esd_transfer_bytes_total", "worker, op"), "worker {{worker}} {{op}}"),
                (_rate("esd_direct_bytes_total", "worker"), "worker {{worker}} push, straight to workers"),
                (_rate("esd_dispatcher_plan_bytes_total", "job"), "plans of all workers"),
            ],
        ),
        Panel("Held up", "ops", [(_rate("esd_late_iterations_total", "worker"), "worker {{worker}}")]),
        Panel(
            "Samples that a cache has room for",
            "none",
            [("esd_worker_held_back_samples", "worker {{worker}}")],
            "0: the cache does not limit the worker.",
        ),
        Panel("Workers that rest", "none", [("esd_worker_rests", "worker {{worker}}")], "1: no samples, so no sums."),
        Panel("Returns of workers", "ops", [(_rate("esd_worker_returns_total", "worker"), "worker {{worker}}")]),
        Panel("Bandwidth", "Bps", [("esd_worker_bandwidth_bytes_per_second", "worker {{worker}}")]),
    ),
    "Parameter server": (
        Panel("Bytes of sums", "Bps", [(_rate("esd_sum_bytes_total", "op"), "{{op}}")], "With --dense server."),
        Panel("Bytes that wait to be summed", "bytes", [("esd_sum_held_bytes", "{{instance}}")]),
        Panel("Rows", "none", [("esd_table_rows", "{{table}} {{instance}}")]),
        Panel("Partial gradients that wait", "none", [("esd_pending_gradients", "{{table}} {{instance}}")]),
        Panel("Their memory", "bytes", [("esd_pending_gradient_bytes", "{{table}} {{instance}}")]),
        Panel("Pulls that wait", "none", [("esd_waiting_pulls", "{{table}} {{instance}}")]),
        Panel("Frames of exchanges", "ops", [(_rate("esd_exchange_frames_total", "code"), "{{code}}")]),
        Panel("Bytes of exchanges", "Bps", [(_rate("esd_exchange_bytes_total", "op"), "{{op}}")]),
        Panel("Time of a frame, mean", "s", [(_mean("esd_exchange_seconds", "instance"), "{{instance}}")]),
        Panel("Store, 99th percentile", "s", [("esd:store_seconds:p99_5m", "{{op}} {{instance}}")]),
        Panel("Calls at the store", "none", [("esd_store_calls", "{{instance}}")]),
        Panel("Store answers", "none", [("esd_store_up", "{{instance}}")]),
    ),
    "Services": (
        Panel(
            "Calls per second",
            "ops",
            [
                (_rate("grpc_server_handled_total", "job, code"), "{{job}} {{code}}"),
                (_rate("esd_refused_messages_total", "job, code"), "{{job}} message {{code}}"),
            ],
        ),
        Panel("Time of a call, mean", "s", [(_mean("grpc_server_handling_seconds", "method"), "{{method}}")]),
        Panel("Targets that answer", "none", [("sum by (job) (up)", "{{job}}")]),
        Panel("Memory", "bytes", [("process_resident_memory_bytes", "{{job}} {{instance}}")]),
        Panel("Processors in use", "none", [(_rate("process_cpu_seconds_total", "job"), "{{job}}")]),
    ),
    "Served model": (
        Panel("Samples scored per second", "ops", [(_rate("esd_model_scored_samples_total"), "samples")]),
        Panel(
            "Requests for scores per second",
            "ops",
            [(_rate("esd_model_requests_total", "way, code"), "{{way}}, {{code}}")],
        ),
        Panel("Time of a request, 99th percentile", "s", [(_p99("esd_model_request_seconds", "way"), "{{way}}")]),
        Panel("Requests that wait for scores", "bytes", [("esd_model_waiting_bytes", "waiting")]),
        Panel("Newer folders per second", "ops", [(_rate("esd_model_reloads_total", "result"), "{{result}}")]),
        Panel(
            "Lag behind the job that trains",
            "s",
            [("esd_model_fresh_lag_seconds", "{{instance}}"), ("esd_model_fresh_connected", "{{instance}} follows: 1")],
        ),
        Panel(
            "Newer rows per second",
            "ops",
            [
                (_rate("esd_model_fresh_rows_total"), "rows"),
                (_rate("esd_model_fresh_dense_total"), "dense parameters"),
                (_rate("esd_model_fresh_anew_total"), "all rows of a table at a server"),
            ],
        ),
        Panel(
            "Rounds of newer rows per second, by the time within which they are served",
            "ops",
            [(_rate("esd_model_fresh_seconds_bucket", "le"), "{{le}} s")],
        ),
        Panel("Readers of changed rows", "none", [("esd_change_readers", "{{instance}}")]),
        Panel("Memory of newer rows", "bytes", [("esd_model_fresh_bytes", "{{instance}}")]),
    ),
    "Lanes": (
        Panel("Connections over lanes", "none", [("esd_lanes_connections", "{{instance}}")]),
        Panel(
            "Bytes per second over lanes",
            "Bps",
            [(_rate("esd_lanes_bytes_total", "instance, op"), "{{instance}} {{op}}")],
        ),
        Panel(
            "Blocks per second that were not waited for",
            "ops",
            [
                (_rate("esd_lanes_restored_blocks_total", "instance"), "{{instance}} restored"),
                (_rate("esd_lanes_left_out_blocks_total", "instance"), "{{instance}} left out"),
            ],
        ),
    ),
}  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Returns the dashboard in Grafana's JSON model."""
    return {
        "uid": "esd",
        "title": "ESD",
        "tags": ["esd"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "panels": [{"id": number, **panel} for number, panel in enumerate(_panels(), start=1)],
    }


def _panels() -> Iterator[dict[str, Any]]:
    """Yields row headings and graphs with their places on the grid."""
    top = 0
    for heading, panels in ROWS.items():
        yield {"type": "row", "title": heading, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": []}
        top += 1
        for place, panel in enumerate(panels):
            row, column = divmod(place, _PER_ROW)
            position = {"x": column * _WIDTH, "y": top + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield _graph(panel) | {"gridPos": position}
        top += -(-len(panels) // _PER_ROW) * _HEIGHT


def _graph(panel: Panel) -> dict[str, Any]:
    style = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.stacked else {"fillOpacity": 0}
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for i, (expression, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": style}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }


def text() -> str:
    """Returns the dashboard as the text of its file."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
