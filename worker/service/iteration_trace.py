"""The spans of a worker's iteration, made from the times that it takes anyway."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from esd.services.domain.reports import PHASES
from esd.services.runtime.tracing import Span
from esd.worker.training.step_times import StepTimes

PLAN_WAIT, PUSH, PULL, COMPUTE, ALL_REDUCE, UPDATE = PHASES  # as in esd_iteration_seconds
_OF_STEP = (COMPUTE, UPDATE, ALL_REDUCE, UPDATE, ALL_REDUCE)  # by the parts of StepTimes


def end_trace(span: Span, moves: Sequence[float], step: StepTimes) -> None:
    """Ends the span of an iteration, whose pushes are durable, and gives it a child for each phase.

    Args:
        span: of the iteration.
        moves: when the worker began to wait for the plan, had it, had the pushes away, and had the pulls.
        step: the times of the step.
    """
    for name, (began, ended) in zip((PLAN_WAIT, PUSH, PULL), pairwise(moves), strict=True):
        span.child(name, began, ended)
    for name, (began, ended) in zip(_OF_STEP, pairwise(step), strict=True):
        span.child(name, began, ended)
    span.end()
