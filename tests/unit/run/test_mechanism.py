"""Of the options that a run has for every mechanism, its own mechanism gets its own, and no other may be set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from esd.run.options import RunOptions
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import single_ids
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import (
    Criterion,
    EsdOptions,
    HashOptions,
    JointOptions,
    LaiaOptions,
    LaiaReading,
    MechanismOptions,
    mechanism_text,
    parse_mechanism,
)


def job_of(options: RunOptions) -> JobSpec:
    return options.job(features=single_ids(("user", "item")), dense_features=(), parameter_servers=("ps:1",))


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"mechanism": "joint"}, JointOptions()),
        ({"mechanism": "joint", "horizon": 3}, JointOptions(horizon=3)),
        ({"mechanism": "hash", "hash_field": 1}, HashOptions(hash_field=1)),
        ({"mechanism": "esd", "alpha": "0"}, EsdOptions(alpha=0.0)),
        ({"mechanism": "esd", "alpha": "auto"}, EsdOptions(auto_alpha=True)),
        (
            {"mechanism": "esd-priced", "criterion": Criterion.ROW_MEAN, "solver": "paths", "eviction_term": True},
            EsdOptions(criterion=Criterion.ROW_MEAN, solver="paths", eviction_term=True),
        ),
        ({"mechanism": "laia"}, LaiaOptions()),
        ({"mechanism": "laia-adaptive", "laia_reading": LaiaReading.TEXT}, LaiaOptions(LaiaReading.TEXT)),
        ({"mechanism": "random"}, None),
        ({"mechanism": "unknown"}, None),  # the dispatcher refuses it
    ],
)
def test_a_mechanism_gets_its_options(given: dict[str, Any], options: MechanismOptions | None) -> None:
    assert job_of(RunOptions(**given)).mechanism_options == options


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"mechanism": "laia", "alpha": "0.5"}, "--alpha 0.5 is for esd and esd-priced, laia has no such option"),
        ({"mechanism": "joint", "alpha": "auto"}, "--alpha auto is for esd and esd-priced, joint has no such option"),
        ({"criterion": Criterion.ROW_MEAN}, "--criterion row-mean is for esd and esd-priced, joint has no such option"),
        ({"eviction_term": True}, "--eviction-term is for esd and esd-priced, joint has no such option"),
        ({"solver": "paths"}, "--solver paths is for esd and esd-priced, joint has no such option"),
        ({"mechanism": "esd", "horizon": 2}, "--horizon 2 is for joint, esd has no such option"),
        ({"hash_field": 0}, "--hash-field 0 is for hash, joint has no such option"),
    ],
)
def test_an_option_of_another_mechanism_is_refused_by_its_name(given: dict[str, Any], refusal: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        job_of(RunOptions(**given))
    assert str(refused.value) == refusal + " (--mechanism)"


def test_the_options_under_another_mechanism_are_its_defaults() -> None:
    """`esd plan` measures a model under random dispatch, and the job that it sizes may have another mechanism."""
    for given in ({"mechanism": "joint", "horizon": 2}, {"mechanism": "esd", "alpha": "auto", "solver": "paths"}):
        options = RunOptions(**given, workers=3)
        assert options.under("random") == RunOptions(mechanism="random", workers=3)
        with pytest.raises(InvalidArgument, match="random has no such option"):
            job_of(replace(options, mechanism="random"))


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("random", "random", None),
        ("laia", "laia", None),
        ("laia:text", "laia", LaiaOptions(LaiaReading.TEXT)),
        ("esd:0.5", "esd", EsdOptions(0.5)),
        ("joint:4", "joint", JointOptions(4)),
        ("hash:2", "hash", HashOptions(2)),
    ],
)
def test_an_entry_of_a_list_of_mechanisms_has_a_value_of_the_first_option(
    text: str, name: str, options: MechanismOptions | None
) -> None:
    assert parse_mechanism(text) == (name, options)
    assert mechanism_text(name, options) == text


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("laia:paper", "mechanism 'laia:paper' has 'paper' as laia_reading, it must be text, code"),
        ("joint:many", "mechanism 'joint:many' has 'many' as horizon, it must be of type int"),
        ("joint:65", "horizon is 65, it must be in 1..64"),
        ("random:1", "mechanism 'random:1' has a value after its name, random has no options"),
    ],
)
def test_a_value_that_is_none_of_the_first_option_is_refused(text: str, refusal: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_mechanism(text)
    assert str(refused.value) == refusal
