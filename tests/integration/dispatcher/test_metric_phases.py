"""HELP texts that list phases list those that a run really has."""

import re

import pytest

from esd.services.runtime.metrics import DISPATCH_SECONDS, ITERATION_SECONDS, JOB_PHASE
from tests.support.simple_clients import Dispatcher, job_with, run_to_the_end, samples


@pytest.mark.parametrize("metric", [DISPATCH_SECONDS, ITERATION_SECONDS, JOB_PHASE], ids=lambda metric: metric._name)
async def test_help_lists_the_phases_that_are_measured(dispatcher: Dispatcher, metric: object) -> None:
    await run_to_the_end(dispatcher, job_with(mechanism="esd"), [samples(8, seed=seed) for seed in range(3)])
    (family,) = metric.collect()  # type: ignore[attr-defined]
    listed = re.search(r": ([a-z_]+(?:, [a-z_]+)+)\. ", family.documentation)
    assert listed is not None, family.documentation
    assert set(listed[1].split(", ")) == {sample.labels["phase"] for sample in family.samples}
