"""Figures over several seeds: their mean and their spread."""

from __future__ import annotations

import json
import math

import pytest

from esd.cli.seeds import print_seeds
from esd.run.seeds import over_seeds


def run(seed: int, *, held_out: bool = True) -> dict:
    figures = {"loss": 0.5 + seed / 10, "auc": 0.7, "normalised_entropy": 0.9, "calibration": math.nan}
    return figures | {"held_out": {**figures, "auc": 0.6 + seed / 100} if held_out else None}


def test_mean_and_spread_are_those_of_the_runs() -> None:
    result = over_seeds(3, 3, run)
    assert [each["seed"] for each in result["runs"]] == [3, 4, 5]
    assert result["mean"]["loss"] == pytest.approx(0.9)
    assert result["spread"]["loss"] == pytest.approx(0.1)  # of 0.8, 0.9, 1.0, with n - 1
    assert (result["mean"]["held_out.auc"], result["spread"]["held_out.auc"]) == pytest.approx((0.64, 0.01))
    assert math.isnan(result["mean"]["calibration"])
    assert math.isnan(result["spread"]["calibration"])


def test_without_held_out_samples_there_are_no_figures_of_them() -> None:
    assert set(over_seeds(0, 2, lambda seed: run(seed, held_out=False))["mean"]) == set(run(0)) - {"held_out"}


def test_a_program_reads_what_people_see(capsys: pytest.CaptureFixture[str]) -> None:
    result = over_seeds(0, 2, run)
    print_seeds(result, as_json=True)
    assert json.loads(capsys.readouterr().out)["mean"]["calibration"] is None
    print_seeds(result, as_json=False)
    shown = capsys.readouterr().out
    assert "seed 1" in shown
    assert "0.6050" in shown  # mean of the held-out AUC
