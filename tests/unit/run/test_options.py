"""The numbers of a run's options are checked where the options are made, with the names of the command line."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.cli.later import load
from esd.run.options import LIMITS, RunOptions, option_name, plain
from esd.run.prepare import prepare
from esd.services.domain.errors import InvalidArgument


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"workers": 0}, "--workers is 0, it must be from 1 to 128"),
        ({"workers": 129}, "--workers is 129, it must be from 1 to 128"),
        ({"cache_ratio": 1.5}, "--cache-ratio is 1.5, it must be from 0 to 1"),
        ({"weight_decay": -0.1}, "--weight-decay is -0.1, it must be at least 0"),
        ({"clip": float("nan")}, "--clip is nan, it must be at least 0"),
        ({"batch": 0}, "--batch is 0, it must be at least 1"),
        ({"hash_field": -1}, "--hash-field is -1, it must be at least 0"),
    ],
)
def test_a_number_out_of_its_limits_is_refused_by_its_option(options: dict[str, Any], refusal: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        RunOptions(**options)
    assert str(refused.value) == refusal


@pytest.mark.parametrize(
    "option", ["batch", "cache_rows", "max_rows", "checkpoint_every", "checkpoints_kept", "seed", "dim"]
)
def test_a_number_of_more_digits_than_travel_is_refused_by_its_name(option: str) -> None:
    given = {"data": "synthetic:zipf?samples=40", "workers": 1, "cache_rows": 50, option: 10**24}
    with pytest.raises(InvalidArgument, match=rf"{option.replace('_', '.')}\S* is {10**24}, it must be "):
        _prepared_cache(given)


def _prepared_cache(given: dict[str, Any]) -> int:
    chosen = RunOptions(**given)
    return chosen.cache_size(prepare(chosen).stream.whole).rows


def test_every_number_has_limits_but_learning_rates() -> None:
    numbers = {field.name for field in fields(RunOptions) if {"int", "float"} & set(str(field.type).split(" | "))}
    assert numbers - set(LIMITS) == {"learning_rate", "dense_learning_rate"}  # the optimizer checks them


def test_the_command_line_has_every_option_by_its_name_with_its_default_and_limits() -> None:
    parameters = {parameter.name: parameter for parameter in load("train").params}
    for field in fields(RunOptions):
        parameter = parameters[field.name]
        assert option_name(field.name) in parameter.opts
        assert parameter.default == field.default
        if field.name in LIMITS:
            assert (parameter.min, parameter.max) == LIMITS[field.name]


def test_numbers_of_numpy_are_values_of_json_too() -> None:
    options = RunOptions(dim=np.int64(8), learning_rate=np.float64(0.25), evaluate_every=np.int32(10))
    assert json.loads(json.dumps(plain(options))) == plain(RunOptions(dim=8, learning_rate=0.25, evaluate_every=10))
    assert type(options.dim) is int


def test_every_option_is_a_value_of_json() -> None:
    options = RunOptions(schema=Path("schema.toml"), site_values=Path("sites.csv"))
    described = json.loads(json.dumps(plain(options)))
    assert described.keys() == {option.name for option in fields(RunOptions)}
    assert (described["schema"], described["site_values"], described["loss"]) == ("schema.toml", "sites.csv", "bce")
