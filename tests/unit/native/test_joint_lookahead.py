"""Joint dispatch that knows the batches to come: its objective in plain Python, and brute force."""

import itertools
import random

import numpy as np
import pytest

from esd.services.domain.workloads import scale_workloads
from tests.unit.native.reference_joint import objective, trainers_of
from tests.unit.native.test_joint_search import LINKS, draw_capacities, int32, with_history


def next_trainers(window, assignment, samples, lookahead):
    """For every row, the workers that train it in the first batch of the lookahead that uses it."""
    known = {}
    for size in lookahead:
        batch = slice(samples, samples + size)
        for x, workers in trainers_of(window[batch], assignment[batch]).items():
            known.setdefault(x, workers)
        samples += size
    return known


def with_lookahead(rng, workers, samples, lookahead, sizes=(), shares=((), ())):
    """Both engines with a batch and its lookahead prepared; capacities of its first batch, links and a seed."""
    whole = samples + sum(lookahead)
    engine, reference = with_history(rng, workers, 30, 40, 4, 12, last_samples=whole, sizes=sizes, shares=shares)
    links = [rng.choice(LINKS) for _ in range(workers)]
    return engine, reference, draw_capacities(rng, samples, workers), links, rng.getrandbits(64)


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ((), ((), ())),
        ((), ([0.35], [0.34])),
        ((1, 5, 2, 9), ([1.5, 0.4, 0.7, 0.35], [1.0, 0.37, 0.5, 0.35])),
    ],
    ids=["equal", "parts", "unequal"],
)
@pytest.mark.parametrize(("workers", "lookahead"), [(1, [5]), (2, [6, 6]), (4, [9, 1]), (8, [20, 20, 7]), (40, [12])])
def test_the_objective_knows_who_trains_a_row_next(workers, lookahead, sizes, shares):
    rng = random.Random(workers)
    for _ in range(6):
        samples = rng.choice((1, 6, 20))
        engine, reference, capacities, links, seed = with_lookahead(rng, workers, samples, lookahead, sizes, shares)
        window = int32(scale_workloads(tuple(capacities), samples + sum(lookahead)))
        plan = engine.joint(int32(links), window, seed)[0].tolist()
        known = next_trainers(reference.batch, plan, samples, lookahead)
        before = engine.snapshot()
        assignment, cost, _, _ = engine.joint(int32(links), int32(capacities), seed, lookahead=lookahead)
        assert np.bincount(assignment, minlength=workers).tolist() == capacities
        assert cost == objective(reference, assignment.tolist(), links, known)
        assert engine.snapshot() == before


@pytest.mark.parametrize("workers", [2, 3])
def test_long_searches_find_what_brute_force_finds(workers):
    rng = random.Random(workers)
    for _ in range(12):
        engine, reference, capacities, links, seed = with_lookahead(rng, workers, 6, [6, 4])
        rounds = {"wide_rounds": 200, "narrow_rounds": 300}
        plan = engine.joint(int32(links), int32(scale_workloads(tuple(capacities), 16)), seed, **rounds)[0].tolist()
        known = next_trainers(reference.batch, plan, 6, [6, 4])
        places = [j for j in range(workers) for _ in range(capacities[j])]
        least = min(objective(reference, order, links, known) for order in set(itertools.permutations(places)))
        assert engine.joint(int32(links), int32(capacities), seed, lookahead=[6, 4], **rounds)[1] == least


def test_without_time_left_a_window_is_placed_all_the_same():
    engine, _, capacities, links, seed = with_lookahead(random.Random(1), 4, 6, [6, 4])
    assignment, _, _, rounds = engine.joint(int32(links), int32(capacities), seed, 0.0, lookahead=[6, 4])
    assert rounds == (0, 0)
    assert np.bincount(assignment, minlength=4).tolist() == capacities


def test_samples_that_are_in_no_batch_are_named():
    engine, _, capacities, links, seed = with_lookahead(random.Random(1), 4, 6, [6, 4])
    with pytest.raises(ValueError, match="capacities sum to 6, the batch has 16 samples, 9 of them in batches that fo"):
        engine.joint(int32(links), int32(capacities), seed, lookahead=[9])
    with pytest.raises(ValueError, match="capacities sum to 0, the batch has 16 samples, 16 of them in batches that f"):
        engine.joint(int32(links), int32([0] * 4), seed, lookahead=[16])
