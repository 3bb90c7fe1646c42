"""`esd simulate --replay`: the plans of a recorded run, made and checked again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from dispatcher.core.decision_log import JobOpened, read_decisions
from dispatcher.simulator.decision_replay import replay_decisions
from esd.cli.options import RunOptions
from esd.cli.report import Result, simulation_result
from esd.cli.stream import global_batches
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument
from services.domain.plans import IterationPlan
from services.wire.jobs import job_of_json
from services.wire.plans import digest_of, encode_plan_message

_READ_SAMPLES = 1024


def replay_result(chosen: RunOptions, log: Path) -> Result:
    """Replays a decision log on the data that the options name.

    Raises:
        FailedPrecondition: a plan differs from the recorded one.
        InvalidArgument: the file is no decision log, or the data ends before it does.
    """
    records = read_decisions(log)
    opened = next(records, None)
    if not isinstance(opened, JobOpened):
        raise InvalidArgument(f"decision log {log} is empty")
    job = job_of_json(opened.job)

    def batches() -> Iterator[SampleBatch]:
        return global_batches(chosen.open(_READ_SAMPLES), job.batch_size)

    return simulation_result(replay_decisions(chain([opened], records), job, batches, _digest))


def _digest(plans: Sequence[IterationPlan]) -> str:
    return digest_of(encode_plan_message(plan) for plan in plans)
