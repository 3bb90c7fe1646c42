"""Teams of machines and ways to sum: which are compared, and which is the fastest, on a model that is not measured."""

from dataclasses import replace

import pytest

from esd.advice.sizing import Profile, simulated
from esd.advice.teams import Teams, compare_teams
from esd.cli.teams_report import no_gain, teams_table
from esd.run.options import RunOptions
from esd.services.domain.footprint import Footprint

RUN = RunOptions(
    data="synthetic:zipf?keys=3000&fields=4", workers=4, batch=24, dim=8, mechanism="laia", links="100m,100m,2m,2m",
    cache_rows=2000, dense_sum="all-reduce",
)  # fmt: skip
LARGE, SMALL = ((400, 300), (300,)), ((8, 8),)  # shapes of dense parameters: 482 kB, 256 bytes
MEMORY = 1e9


def compared(
    chosen: RunOptions, shapes: tuple[tuple[int, ...], ...], sample: float = 1e-6, **footprint_has: float
) -> Teams:
    profile = Profile.of(chosen, 6000)
    footprint = Footprint(1e6, 100, 1e3, 1e-4, sample, shapes, **footprint_has)
    trial = simulated(chosen, profile, footprint, chosen.batch, chosen.cache_rows)
    return compare_teams(chosen, profile, footprint, trial, MEMORY)


def test_slow_machines_are_left_out_where_a_large_model_waits_for_them() -> None:
    """Alone is no answer here: a sample takes computation, which two share."""
    teams = compared(RUN, LARGE, sample=4e-3)
    assert [team.machines for team in teams.all] == [(0, 1, 2, 3), (0, 1), (0,)]
    assert (teams.machines, teams.left_out) == ((0, 1), (2, 3))
    assert (teams.best.workers, teams.best.links, teams.best.batch) == (2, "100m,100m", 48)
    assert sum(teams.best.worker_samples()) == sum(RUN.worker_samples()), "another global batch is another model"
    assert teams.seconds == min(teams.all[1].seconds[way] for way in ("all-reduce", "server"))
    assert teams.seconds < 0.8 * min(teams.all[0].seconds[way] for way in ("all-reduce", "server"))


def test_one_machine_is_fastest_where_the_sum_takes_longest() -> None:
    teams = compared(RUN, LARGE)
    assert (teams.machines, teams.best.workers, teams.best.batch) == ((0,), 1, 96)
    assert len(set(teams.all[2].seconds.values())) == 1, "one machine sums nothing"


def test_a_machine_with_all_rows_takes_its_computation_alone() -> None:
    slow_links, slow_machines = compared(RUN, LARGE), compared(replace(RUN, links="100m"), SMALL, sample=1e-2)
    assert slow_links.alone_seconds == pytest.approx(1e-6 + 1e-4 / 96)
    assert (slow_links.pays, slow_links.as_json()["pays"]) == (False, False), "its rows would pass a link"
    assert slow_machines.alone_seconds == pytest.approx(1e-2 + 1e-4 / 96)
    assert slow_machines.pays, "four share the computation"
    assert "which takes 2.0 µs of a sample" in no_gain(slow_links)
    last = [list(column.cells)[-1] for column in teams_table(slow_links).columns]
    assert last == ["one with all rows in its memory", *["2.0"] * len(slow_links.all[0].seconds)]


def test_a_gain_is_uncertain_where_it_depends_on_the_rows_that_move_while_workers_compute() -> None:
    faster, between, slower = (compared(replace(RUN, links=f"{mbit}m"), SMALL, sample=3.2e-4) for mbit in (8, 2, 1))
    assert [(teams.pays, teams.may_pay) for teams in (faster, between, slower)] == [
        (True, True),
        (False, True),
        (False, False),
    ]
    assert between.least_seconds < between.alone_seconds < between.seconds
    assert no_gain(between).startswith("perhaps no gain: ")
    assert no_gain(slower).startswith("no gain: ")


def test_messages_take_the_processors_of_teams_and_not_of_one_machine_with_all_rows() -> None:
    chosen = replace(RUN, links="100m")
    quick, slow = compared(chosen, SMALL, sample=1e-3), compared(chosen, SMALL, sample=1e-3, message_seconds=0.09)
    assert (quick.pays, slow.pays) == (True, False)
    assert slow.alone_seconds == quick.alone_seconds
    for before, after in zip(quick.all, slow.all, strict=True):
        assert after.seconds["server"] == pytest.approx(before.seconds["server"] + 0.09 / 96)


def test_round_trips_are_those_of_the_way_to_sum_and_decide_whether_a_team_pays() -> None:
    chosen = replace(RUN, links="1g")
    near, far = compared(chosen, SMALL, sample=1e-3), compared(chosen, SMALL, sample=1e-3, round_trip_seconds=0.1)
    assert (near.pays, far.pays) == (True, False)
    added = {way: 96 * (far.all[0].seconds[way] - near.all[0].seconds[way]) for way in far.all[0].seconds}
    assert added == pytest.approx({"all-reduce": 1.2, "server": 0.1, "low-rank:8": 0.2, "low-rank:4": 0.2})
    alone = [
        96 * (after.seconds["server"] - before.seconds["server"])
        for before, after in zip(near.all, far.all, strict=True)
    ]
    assert alone == pytest.approx([0.1, 0.1]), "one machine waits for rows alone"
    assert far.best.dense_sum == "server"


def test_all_machines_stay_where_computation_takes_longest() -> None:
    teams = compared(replace(RUN, links="100m"), SMALL, sample=1e-2)
    assert [team.machines for team in teams.all] == [(0, 1, 2, 3), (0,)]
    assert (teams.machines, teams.left_out) == ((0, 1, 2, 3), ())
    assert teams.best == RunOptions(**{**_values(RUN), "links": "100m"}), "nothing else is changed either"


def test_the_server_sums_what_the_ring_sends_twice() -> None:
    teams = compared(replace(RUN, links="20m"), LARGE, sample=2e-2)
    everyone = teams.all[0].seconds
    dense = 4 * (400 * 300 + 300) / (20e6 / 8) / 96
    assert everyone["all-reduce"] - everyone["server"] == pytest.approx((2 * 3 / 4 - 1) * dense)
    assert everyone["low-rank:8"] < everyone["server"]
    assert (teams.best.dense_sum, teams.best.workers) == ("server", 4), "low rank is another model"


def test_low_rank_that_is_asked_for_stays() -> None:
    teams = compared(replace(RUN, links="20m", dense_sum="low-rank:16"), LARGE, sample=2e-2)
    assert teams.best.dense_sum == "low-rank:16"
    assert next(iter(teams.all[0].seconds)) == "low-rank:16"


def test_averages_that_are_asked_for_stay_since_another_way_trains_another_model() -> None:
    teams = compared(replace(RUN, links="20m", dense_sum="every:64"), LARGE, sample=2e-2)
    assert teams.best.dense_sum == "every:64"
    saved = teams.all[0].seconds["server"] - teams.all[0].seconds["every:64"]
    dense = 4 * (400 * 300 + 300) / (20e6 / 8) / 96
    assert saved == pytest.approx((1 - 2 / 64) * dense, rel=1e-3), "parameters and the state of Adagrad"


def test_workloads_of_a_team_sum_to_the_same_batch_where_it_cannot_be_shared_evenly() -> None:
    """Of 4 x 25 samples three machines have 34, 33 and 33; balanced workloads are left as they are asked for."""
    chosen = replace(RUN, links="100m,100m,100m,1m", batch=25)
    teams = compared(chosen, LARGE, sample=4e-3)
    assert (teams.machines, teams.best.workloads, teams.best.batch) == ((0, 1, 2), "34,33,33", None)
    balanced = compared(replace(chosen, workloads="balanced"), LARGE, sample=4e-3)
    assert [len(team.machines) for team in balanced.all] == [4, 1]


def test_a_team_whose_caches_are_too_small_is_left_out() -> None:
    profile = Profile.of(RUN, 6000)
    footprint = Footprint(1e6, 100, 1e3, 1e-4, 1e-6, LARGE)
    trial = simulated(RUN, profile, footprint, RUN.batch, RUN.cache_rows)
    teams = compare_teams(RUN, profile, footprint, trial, memory=1e6 + 48 * 1e3 + 100)  # a single row for two machines
    assert [team.machines for team in teams.all] == [(0, 1, 2, 3)]
    assert teams.best.workers == 4


def _values(chosen: RunOptions) -> dict[str, object]:
    return {name: getattr(chosen, name) for name in RunOptions.__dataclass_fields__}
