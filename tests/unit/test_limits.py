"""Every limit of the contract and of the settings has a case: a job goes past it, or is refused at its start by name.

The limits are read from the code and from docs/security.md, so that a new one without a case fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic.fields import FieldInfo

from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.settings import ParameterServerSettings
from esd.run.options import LIMITS, RunOptions, option_name
from esd.run.schedules import parse_schedule
from esd.services.domain.dense_sums import parse_dense_sum
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import numbered_ids
from esd.services.domain.mechanisms import JointOptions
from esd.services.domain.negatives import Negatives
from esd.services.domain.references import references_to
from esd.services.domain.sources import SourcePosition
from esd.services.domain.sync import parse_sync
from esd.services.runtime.settings import LEAST_LOGGED_BYTES, LEAST_MESSAGE_BYTES, ServerSettings, SettingsError, load
from esd.services.wire import batches, exchange, sums
from esd.serving.settings import ModelSettings
from esd.worker.service.settings import WorkerSettings
from tests.support.simple_clients import job_with, registration

ROOT = Path(__file__).parents[2]
JOB = job_with()
FEATURE = numbered_ids(1)[0]

# Limits that a job is refused for at its start: something beyond each, which must be refused with the limit.
REFUSED: Mapping[str, Callable[[], object]] = {
    "domain/dense_sums.MAX_INTERVAL": lambda: parse_dense_sum("every:65537"),
    "domain/dense_sums.MAX_RANK": lambda: parse_dense_sum("low-rank:1025"),
    "domain/features.MAX_FEATURES": lambda: job_with(fields=4097),
    "domain/features.MAX_LENGTH": lambda: replace(FEATURE, max_length=2**20 + 1),
    "domain/features._LONGEST_NAME": lambda: replace(FEATURE, name="x" * 257),
    "domain/jobs.MAX_LABELS": lambda: replace(JOB, labels=tuple(map(str, range(65)))),
    "domain/jobs.MAX_LAYERS": lambda: replace(JOB.model, hidden=(8,) * 65),
    "domain/jobs.MAX_TABLES": lambda: replace(
        JOB, tables=tuple(replace(JOB.table, name=f"{JOB.table.name}~{at}") for at in range(257))
    ),
    "domain/jobs.MAX_WIDTH": lambda: replace(JOB.model, hidden=(16385,)),
    "domain/jobs._MOST_32": lambda: replace(JOB, window=2**32),
    "domain/jobs._MOST_64": lambda: replace(JOB, checkpoint_bytes=2**64),
    "domain/mechanisms/joint.MAX_HORIZON": lambda: JointOptions(horizon=65),
    "domain/negatives.MAX_IDS": lambda: Negatives("negative", ids=2**40 + 1, count=1),
    "domain/references.MOST_REFERRED_ROWS": lambda: references_to(0, np.array([2**40])),
    "domain/reports._LONGEST_NAME": lambda: registration("x" * 257),
    "domain/schedules._MOST_ITERATIONS": lambda: parse_schedule(f"cosine:{2**32}", None),
    "domain/sites.LONGEST_SITE": lambda: replace(JOB, sites=("x" * 65,) * JOB.workers),
    "domain/sources.MAX_POSITION": lambda: SourcePosition("x" * (2**16 + 1)),
    "domain/sources._MOST_BEHIND": lambda: SourcePosition("0", 2**63),
    "domain/stream_parts.MAX_STREAM_NAME": lambda: replace(JOB, stream="x" * 1001),
    "domain/stream_parts.MAX_SUBMITTERS": lambda: job_with(submitters=65, batch_size=128),
    "domain/sync/bounded.MAX_BOUND": lambda: parse_sync("bounded:10001,2"),
    "domain/tables.MAX_ADMIT_AFTER": lambda: replace(JOB, admit_afters=(256,)),
    "domain/tables.MAX_DIMENSION": lambda: replace(JOB.table, dimension=4097),
    "domain/tables.MAX_ROW_TTL": lambda: replace(JOB, row_ttls=(2**28,)),
    "domain/worker_set.MAX_WORKERS": lambda: job_with(workers=129),
}

# Limits that jobs go past, or that refuse one sample or call by name: the test that does so.
MET = {
    "domain/features.MAX_SAMPLE_IDS": "test_lists_have_a_million_ids_each_and_a_sample_two_million",
    "domain/parts.PIECE_BYTES": "test_pieces_join_to_the_whole_and_tell_the_last",
    "domain/sum_pieces.LONGEST_PIECE": "test_a_longer_vector_has_longer_pieces_which_the_sums_accept",
    "domain/sum_pieces.PIECE_BYTES": "test_each_shard_gets_every_other_piece",
    "wire/pieces.PIECE_BYTES": "test_a_long_message_comes_in_pieces_and_others_as_they_are",
    "wire/batches.MESSAGE_BYTES": "test_batches_plans_and_the_log_are_longer_than_a_message",
    "wire/exchange.MAX_FRAME_BYTES": "test_pieces_are_all_of_it_and_none_is_too_long_either_way",
    "wire/rows.CHUNK_BYTES": "test_pieces_are_all_of_it_and_none_is_too_long_either_way",
    "wire/sums.MAX_MESSAGE_BYTES": "test_a_wrong_piece_is_refused_and_ends_the_group_with_the_name_of_its_sender",
    "wire/sums.MAX_PIECES": "test_a_wrong_piece_is_refused_and_ends_the_group_with_the_name_of_its_sender",
    "max_message_bytes": "test_a_message_over_the_limit_names_the_setting",
    "max_request_bytes": "test_a_sample_that_is_longer_than_a_message_is_refused_by_its_number",
    "max_concurrent_rpcs": "test_calls_over_the_limit_are_refused_and_name_the_setting",
    "max_dense_bytes": "test_the_limit_that_a_message_names_is_the_one_that_works",
    "max_waiting_bytes": "test_pulls_beyond_the_budget_come_again",
    "max_sum_bytes": "test_memory_is_bounded_and_the_sum_is_complete_nevertheless",
    "max_changed_bytes": "test_a_reader_that_was_away_for_too_many_changes_begins_anew",
    "fresh_bytes": "test_rows_beyond_the_limit_end_the_following_by_name",
    "max_tables": "test_the_number_of_tables_has_a_limit",
    "exchange_frames": "test_frames_beyond_the_credit_are_refused_one_by_one",
    "exchange_bytes": "test_bytes_have_a_credit_too_and_more_than_all_of_it_is_sent_alone",
    "wire/hybrid.PIECE_BYTES": "test_costs_that_are_longer_than_a_message_are_solved",
    "max_costs_bytes": "test_costs_beyond_the_limit_are_refused_before_they_are_read",
    "queued_batches": "test_window_and_back_pressure",
    "queued_bytes": "test_batches_plans_and_the_log_are_longer_than_a_message",
    "shadow_bytes": "test_shadows_that_do_not_fit_are_left_out_by_name",
    "plan_history_bytes": "test_an_observer_that_does_not_read_slows_no_job_and_learns_what_it_has_lost",
    "cache_rows": "test_cache_too_small_changes_nothing",
    "shards": "test_two_servers_share_a_table_by_shard",
}

# Limits that no job meets, and why.
NOT_MET = {
    "domain/reports.MOST_DRIFT": "A larger distance is reported as this one, and so is one that is no number.",
    "domain/reports.MOST_MOVED": "A report of more rows or bytes in one iteration is a faulty worker's.",
    "domain/reports.MOST_SECONDS": "A report of more seconds is a faulty worker's.",
    "domain/state._LONGEST_NAME": "The fingerprint of held-out samples, a stream's, is shorter.",
    "domain/sync/bounded.MOST_UPDATES": "The last interval of the figures has no end.",
    "domain/versions.MAX_VERSION": "A row has 2^30 trainings in each of 2^23 lives.",
    "wire/frames._LONGEST_WAIT_MS": "A longer wait is sent as this one.",
    "wire/plans._MOST_IDS": "A worker whose samples of one iteration have 512 MiB of ids refuses its plan by name.",
    "wire/reports.LONGEST_WAIT_SECONDS": "A client that waits longer asks again.",
    "wire/reports._LONGEST_FAILURE": "A longer text is cut.",
    "window_bytes": "More bytes wait at the client.",
    "store_threads": "More work waits for a thread.",
    "solver_threads": "More calls wait for a thread.",
    "threads": "The number of processors bounds what is worth having.",
    "shard": "It is below the number of shards.",
    "least_samples": "A registration that the job's batches do not fit is refused by name, and the worker asks again.",
    "most_samples": "A registration that the job's batches do not fit is refused by name, and the worker asks again.",
}

# The rows of the table of limits in docs/security.md, by their first words, with the cases above or a test.
DOCUMENTED = {
    "a request": "max_request_bytes",
    "an answer": "max_message_bytes",
    "calls of permitted callers": "max_concurrent_rpcs",
    "costs of `HybridDis`": "max_costs_bytes",
    "health calls": "test_health_streams_have_limits_of_their_own_and_take_no_place",
    "memory of waiting pulls": "max_waiting_bytes",
    "rows of other workers": "test_frames_that_wait_have_a_budget_over_all_streams",
    "one upload": "max_dense_bytes",
    "requests of a served model": "test_requests_beyond_a_limit_are_refused_for_the_moment",
    "connections of the REST API": "test_connections_that_say_nothing_are_closed",
    "connections of the metrics page": "test_idle_connections_take_few_files_and_leave_grpc_alone",
    "a connection whose TLS": "test_grpc_knows_every_option",
    "a connection without calls": "test_grpc_knows_every_option",
    "bytes of a call": "window_bytes",
}

_LIMIT = re.compile(r"_?(MAX|MOST|LONGEST)_[A-Z0-9_]+|(PIECE|MESSAGE|CHUNK)_BYTES")
_SERVICES = (ParameterServerSettings, DispatcherSettings, WorkerSettings, ModelSettings)


def constants() -> Iterator[str]:
    for layer in ("domain", "wire"):
        for path in sorted((ROOT / "services" / layer).rglob("*.py")):
            module = path.relative_to(ROOT / "services").with_suffix("")
            for statement in ast.parse(path.read_text()).body:
                if isinstance(statement, ast.Assign):
                    names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
                    yield from (f"{module}.{name}" for name in names if _LIMIT.fullmatch(name))


def numbers(settings: type[ServerSettings]) -> Iterator[tuple[str, FieldInfo]]:
    """Yields the settings that are whole numbers; seconds bound no size."""
    for name, field in settings.model_fields.items():
        if any(hasattr(each, bound) for each in field.metadata for bound in ("ge", "gt")) and field.annotation is int:
            yield name, field


def test_every_limit_has_one_case() -> None:
    of_services = {name for settings in _SERVICES for name, _ in numbers(settings)}
    found = sorted({*constants(), *of_services})
    assert found == sorted([*REFUSED, *MET, *NOT_MET])
    assert {"max_tables", "queued_bytes", "cache_rows", "domain/jobs.MAX_TABLES"} <= set(found), "they are read"


def test_every_documented_limit_has_a_case() -> None:
    table = (ROOT / "docs" / "security.md").read_text().partition("| what | limit | beyond it |\n|---|---|---|\n")[2]
    rows = [line.split("|")[1].strip() for line in table.partition("\n\n")[0].splitlines()]
    assert len(rows) == len(DOCUMENTED)
    for row, (beginning, case) in zip(rows, DOCUMENTED.items(), strict=True):
        assert row.startswith(beginning)
        assert case.startswith("test_") or case in MET or case in NOT_MET


def test_the_tests_of_the_cases_are_there() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    assert {*MET.values(), *(case for case in DOCUMENTED.values() if case.startswith("test_"))} <= defined


@pytest.mark.parametrize("limit", REFUSED)
def test_a_job_beyond_a_limit_is_refused_at_its_start(limit: str) -> None:
    module, _, name = limit.rpartition(".")
    value = getattr(import_module(f"esd.services.{module.replace('/', '.')}"), name)
    with pytest.raises(InvalidArgument, match=str(value)):
        REFUSED[limit]()


@pytest.mark.parametrize(
    ("settings", "field", "bound"),
    [
        (settings, name, bound)
        for settings in _SERVICES
        for name, field in numbers(settings)
        for bound in field.metadata
    ],
)
def test_a_setting_beyond_its_bound_is_refused_by_name(
    settings: type[ServerSettings], field: str, bound: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {"ge": -1, "gt": 0, "le": 1, "lt": 0}
    wrong = next((getattr(bound, each) + step for each, step in steps.items() if hasattr(bound, each)), None)
    if wrong is None:
        return  # it is no bound, but reads a size
    monkeypatch.setenv(settings.variable(field), str(wrong))
    with pytest.raises(SettingsError, match=f"{settings.variable(field)}={wrong}: "):
        load(settings)


@pytest.mark.parametrize("field", LIMITS)
def test_an_option_beyond_its_bound_is_refused_by_name(field: str) -> None:
    least, most = LIMITS[field]
    for wrong in (least - 1, *(() if most is None else (most + 1,))):
        with pytest.raises(InvalidArgument, match=f"{option_name(field)} is {wrong}, it must be "):
            RunOptions(**{field: wrong})


def test_messages_fit_the_least_limits_that_services_accept() -> None:
    assert max(exchange.MAX_FRAME_BYTES, sums.MAX_MESSAGE_BYTES) < LEAST_MESSAGE_BYTES
    assert batches.MESSAGE_BYTES + batches.OVERHEAD_BYTES < LEAST_LOGGED_BYTES
