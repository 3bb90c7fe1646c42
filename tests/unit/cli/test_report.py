"""The results of `--json` are JSON that every parser accepts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from esd.cli.report import comparison, print_json
from esd.run.results import training_result
from esd.services.domain.dense_sums import Every
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import Evaluation, JobPhase, JobState, Quality
from esd.services.wire.state import decode_state, encode_state
from tests.support.simple_clients import JOB

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def parsed(printed: str) -> Any:
    """Parses as RFC 8259 defines JSON, which has neither NaN nor infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(printed, parse_constant=refuse)


def numbers_or_null(value: Any) -> Any:
    match value:
        case dict():
            return {key: numbers_or_null(each) for key, each in value.items()}
        case list() | tuple():
            return [numbers_or_null(each) for each in value]
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(VALUES)
def test_figures_that_do_not_exist_are_null_at_any_depth(capsys: pytest.CaptureFixture[str], value: Any) -> None:
    print_json(value)
    assert parsed(capsys.readouterr().out) == numbers_or_null(value)


def state_of(job: JobSpec, **figures: float) -> JobState:
    unknown = Quality(math.nan, math.nan, math.nan, math.nan)
    return JobState(
        job, JobPhase.RUNNING, "", samples_submitted=0, iterations_planned=0, iterations_confirmed=0,
        quality=unknown, recent=unknown, workers=(), cost_seconds=0.0, makespan_seconds=0.0, expected_cost_seconds=0.0,
        lookups=0, hits=0, decision_median_seconds=0.0, decision_p99_seconds=math.inf, training_seconds=0.0, **figures,
    )  # type: ignore[arg-type]  # fmt: skip


def test_the_result_of_a_run_without_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """It has no GAUC, as a whole and at each evaluation."""
    evaluations = [Evaluation(20, (Quality(0.5, 0.7, 0.9, 1.1),)), Evaluation(40, (Quality(0.4, math.nan, 0.9, 1.1),))]
    print_json(training_result(state_of(JOB), evaluations))
    result = parsed(capsys.readouterr().out)
    assert [(each["auc"], each["gauc"]) for each in result["evaluations"]] == [(0.7, None), (None, None)]
    assert (result["gauc"], result["decision_ms"]["p99"]) == (None, None)


def test_a_run_that_averages_parameters_shows_their_drift_and_that_they_are_not_one_machines() -> None:
    """Over the wire, too; a run that sums gradients has none."""
    label = "drift of dense parameters, which are not one machine's"
    for job, drift in ((replace(JOB, dense_sum=Every(8)), 0.125), (JOB, None)):
        result = training_result(decode_state(encode_state(state_of(job, dense_drift=0.125))))
        assert result["dense_drift"] == drift
        table = comparison({"joint": result})
        shown = dict(zip(*(column.cells for column in table.columns), strict=True))
        assert shown.get(label) == (None if drift is None else "12.50%")
