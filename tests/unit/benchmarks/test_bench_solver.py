"""The solver benchmark: every family, checked optima, the JSON that `esd bench solver` prints."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.solver import CPU_SOLVERS, report, run
from benchmarks.solver_plot import save_plot
from esd.cli.main import app
from esd.services.domain.errors import InvalidArgument
from testbed.cost_families import FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_families_make_valid_costs(family):
    costs = FAMILIES[family](300, 5, np.random.default_rng(1))
    assert costs.shape == (300, 5)
    assert costs.dtype in (np.int32, np.float32)
    assert costs.flags.c_contiguous
    assert (costs >= 0).all()
    np.testing.assert_array_equal(costs, FAMILIES[family](300, 5, np.random.default_rng(1)))


def test_every_solver_is_measured_and_optimal():
    solvers = [*CPU_SOLVERS, "dual-warm", "hungarian", "scipy"]
    results = list(run([3], [8], solvers=solvers, seconds=0))
    assert {(r.solver, r.family) for r in results} == {(solver, family) for solver in solvers for family in FAMILIES}
    assert all(r.optimal and r.k == 24 and 0 <= r.ms_min <= r.ms_median <= r.ms_max for r in results)


def test_the_table_has_the_papers_figures_beside_ours():
    table = report(list(run([8], [32], ["esd"], ["auto"], seconds=0))).splitlines()
    assert table[0] == "| n | m | costs | auto | paper, serial | paper, CUDA |"
    assert table[-1].endswith("| 9 | 21 |")


def test_large_cases_are_left_out():
    assert not list(run([8], [64], solvers=["auto"], largest_matrix=8 * 8 * 64 - 1))


def test_time_runs_out_at_the_largest_cases(caplog):
    assert not list(run([2], [4, 8], ["esd"], ["auto"], limit_seconds=-1))
    assert "2 of 2 cases left out after -1 s" in caplog.text


def bench(*arguments):
    return CliRunner().invoke(app, ["bench", "solver", *arguments])


def test_json_is_the_last_line():
    result = bench("--workers", "2,3", "--batch", "4", "--family", "esd,ties", "--solvers", "auto,paths", "--json")
    results = json.loads(result.stdout.splitlines()[-1])["results"]
    assert len(results) == 8
    assert {"solver", "n", "k", "family", "ms_median", "ms_min", "ms_max", "optimal"} <= results[0].keys()


@pytest.mark.parametrize(("option", "message"), [("eight", "'eight' is no"), ("8,0", "0 in '8,0'")])
def test_bad_numbers_are_refused(option, message):
    result = bench("--workers", option)
    assert isinstance(result.exception, InvalidArgument)
    assert message in str(result.exception)


def test_a_plot_is_drawn(tmp_path):
    path = tmp_path / "times.svg"
    save_plot(list(run([8], [32, 64], ["esd", "uniform"], ["auto", "paths"], seconds=0)), path)
    drawn = path.read_text()
    assert "<svg" in drawn
    assert drawn.count('id="axes_') >= 2


@pytest.mark.parametrize(("families", "solvers"), [(["zigzag"], None), (["esd"], ["simplex"])])
def test_unknown_names_are_refused(families, solvers):
    with pytest.raises(InvalidArgument, match=r"'(zigzag|simplex)' is unknown"):
        list(run([2], [4], families, solvers))


def test_a_larger_share_of_the_exact_solver_saves_more():
    result = CliRunner().invoke(app, ["bench", "alpha", "--iterations", "6", "--json"])
    results = json.loads(result.stdout.splitlines()[-1])["results"]
    assert [(r["samples_per_worker"], r["alpha"]) for r in results] == [
        (m, alpha) for m in (128, 256) for alpha in (1.0, 0.5, 0.25, 0.125, 0.0)
    ]
    for line in (results[:5], results[5:]):
        for against in ("saved_against_laia_text", "saved_against_laia_code"):
            assert line[0][against] > line[-1][against]
