"""Joint dispatch against its objective in plain Python, brute force and its promises."""

import copy
import itertools
import random

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from esd.native.engine import Engine
from esd.native.engines import engine_of
from esd.services.domain.ids import in_table
from tests.unit.native.engine_pairs import prepare_both
from tests.unit.native.reference_engine import ReferenceEngine
from tests.unit.native.reference_joint import objective

LINKS = (1, 2, 3, 10)


def int32(values):
    return np.array(values, np.int32)


def draw_batch(rng, universe, samples, fields):
    """Skewed ids, the extremes among them; samples repeat ids."""
    names = [0, 2**64 - 1, *range(1, universe)]
    batch = [[names[int(len(names) * rng.random() ** 2)] for _ in range(fields)] for _ in range(samples)]
    return np.array(batch, np.uint64).reshape(samples, fields)


def draw_capacities(rng, samples, workers):
    """Anything that sums to the number of samples; often some are zero."""
    active = rng.sample(range(workers), rng.randint(1, workers))
    chosen = [rng.choice(active) for _ in range(samples)]
    return [chosen.count(j) for j in range(workers)]


def with_history(
    rng, workers, universe, samples, fields, iterations, last_samples=None, sizes=(), shares=((), ()), lists=False
):
    """Both engines after the same random iterations, with the same batch prepared; a table per field with sizes."""
    caches = [samples * fields * max(sizes, default=1) + rng.choice((0, 5, 100)) for _ in range(workers)]
    gradients, values = shares
    options = {"table_sizes": sizes, "gradient_shares": gradients, "value_shares": values}
    engine, reference = (kind(caches, "emark", **options) for kind in (engine_of(workers).Engine, ReferenceEngine))
    for t in range(iterations + 1):
        batch = draw_batch(rng, universe, samples if t < iterations else last_samples or samples, fields)
        for number in range(len(sizes)):
            batch[:, number] = in_table(batch[:, number], number)
        if lists:
            prepare_both(engine, reference, batch, rng)
        else:
            engine.prepare(batch)
            reference.prepare(batch.tolist())
        if t < iterations:
            assignment = [rng.randrange(workers) for _ in batch]
            engine.commit(int32(assignment))
            reference.commit(assignment)
    return engine, reference


@pytest.mark.parametrize("workers", [1, 2, 4, 5, 8, 13, 32, 33, 64, 65, 128])
def test_capacities_are_met_and_the_cost_is_the_objective(workers):
    rng = random.Random(workers)
    for _ in range(12):
        universe, samples, lists = rng.choice((20, 200)), rng.choice((1, 9, 40)), rng.random() < 0.5
        engine, reference = with_history(rng, workers, universe, samples, 4, 20, lists=lists)
        capacities = draw_capacities(rng, len(reference.batch), workers)
        links = [rng.choice(LINKS) for _ in range(workers)]
        assignment, cost, start, rounds = engine.joint(int32(links), int32(capacities), rng.getrandbits(64))
        assert np.bincount(assignment, minlength=workers).tolist() == capacities
        assert cost == objective(reference, assignment.tolist(), links)
        assert cost <= start
        assert rounds == (0, 35)


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ((), ([0.35], [0.34])),
        ((1, 5, 2, 9), ([], [])),
        ((1, 5, 2, 9), ([1.5, 0.4, 0.7, 0.35], [])),
        ((1, 5, 2, 9), ([1.5, 0.4, 0.7, 0.35], [1.0, 0.37, 0.5, 0.35])),
    ],
    ids=str,
)
@pytest.mark.parametrize("workers", [2, 5, 33])
def test_the_cost_is_the_objective_where_rows_and_gradients_differ_in_size(workers, sizes, shares):
    rng = random.Random(workers)
    for _ in range(8):
        engine, reference = with_history(rng, workers, rng.choice((20, 200)), 40, 4, 20, sizes=sizes, shares=shares)
        capacities = draw_capacities(rng, 40, workers)
        links = [rng.choice(LINKS) for _ in range(workers)]
        assignment, cost, start, _ = engine.joint(int32(links), int32(capacities), rng.getrandbits(64))
        assert np.bincount(assignment, minlength=workers).tolist() == capacities
        assert cost == objective(reference, assignment.tolist(), links)
        assert cost <= start


@pytest.mark.parametrize(
    ("workers", "samples"), [(2, 30), (3, 30), (8, 30), (9, 30), (20, 90), (33, 150), (64, 300), (80, 300)]
)
def test_first_round_is_the_optimum_of_esd(workers, samples):
    rng = random.Random(workers)
    for _ in range(10):
        engine, reference = with_history(rng, workers, 2 * samples, samples, 4, 12)
        capacities = int32(draw_capacities(rng, samples, workers))
        links = int32([rng.choice(LINKS) for _ in range(workers)])
        assignment, cost, start, _ = engine.joint(links, capacities, 0, wide_rounds=0, narrow_rounds=0)
        costs = engine.costs(links)
        places = costs[:, np.repeat(np.arange(workers), capacities)]
        assert np.bincount(assignment, minlength=workers).tolist() == capacities.tolist()
        assert costs[np.arange(samples), assignment].sum() == places[linear_sum_assignment(places)].sum()
        assert cost == start == objective(reference, assignment.tolist(), links.tolist())


@pytest.mark.parametrize(("workers", "samples"), [(2, 6), (3, 6), (4, 5)])
def test_long_searches_find_what_brute_force_finds(workers, samples):
    rng = random.Random(workers)
    for _ in range(15):
        engine, reference = with_history(rng, workers, 25, 12, 4, 15, last_samples=samples)
        capacities = draw_capacities(rng, samples, workers)
        links = [rng.choice(LINKS) for _ in range(workers)]
        places = [j for j in range(workers) for _ in range(capacities[j])]
        least = min(objective(reference, order, links) for order in set(itertools.permutations(places)))
        _, cost, _, _ = engine.joint(int32(links), int32(capacities), 1, wide_rounds=200, narrow_rounds=300)
        assert cost == least


def test_search_pays_off_and_more_rounds_never_hurt():
    rng = random.Random(5)
    engine, _ = with_history(rng, 8, 400, 128, 6, 25)
    arguments = int32([1] * 4 + [10] * 4), int32([16] * 8), 3
    costs = [engine.joint(*arguments, wide_rounds=5, narrow_rounds=rounds)[1] for rounds in (0, 10, 30, 200)]
    start = engine.joint(*arguments)[2]
    assert costs == sorted(costs, reverse=True)
    assert costs[2] < 0.95 * start


def test_same_arguments_give_the_same_answer_and_change_nothing():
    rng = random.Random(11)
    engine, _ = with_history(rng, 6, 150, 60, 5, 15)
    before = engine.snapshot()
    first = engine.joint(int32([1, 1, 2, 5, 5, 10]), int32([10] * 6), 42)
    again = engine.joint(int32([1, 1, 2, 5, 5, 10]), int32([10] * 6), 42)
    other = engine.joint(int32([1, 1, 2, 5, 5, 10]), int32([10] * 6), 43)
    assert first[0].tolist() == again[0].tolist()
    assert first[1:] == again[1:]
    assert first[0].tolist() != other[0].tolist()
    assert engine.snapshot() == before


def test_a_restored_engine_knows_what_rows_are_used_again():
    rng = random.Random(2)
    engine, reference = with_history(rng, 4, 60, 40, 4, 60)  # the hottest rows are trained far more than 15 times
    restored = Engine([cache.capacity for cache in reference.caches], "emark")
    restored.restore(engine.snapshot())
    restored.prepare(np.array(reference.batch, np.uint64))
    arguments = int32([1, 2, 3, 10]), int32([10] * 4), 7
    assert restored.joint(*arguments)[1:] == engine.joint(*arguments)[1:]


def test_without_time_left_the_first_round_stands():
    engine, _ = with_history(random.Random(1), 4, 60, 40, 4, 10)
    for seconds in (0.0, -1.0):
        _, cost, start, rounds = engine.joint(int32([1, 2, 3, 10]), int32([10] * 4), 7, seconds)
        assert rounds == (0, 0)
        assert cost == start


@pytest.mark.parametrize("workers", [4, 20, 64, 80])
def test_large_link_costs_are_rounded_not_overflown(workers):
    samples = 10 * workers
    engine, reference = with_history(random.Random(3), workers, 60, samples, 4, 10)
    links = [10**7, 1, 3 * 10**7, 2 * 10**7] * (workers // 4)
    assignment, cost, _, _ = engine.joint(int32(links), int32([10] * workers), 7)
    assert np.bincount(assignment, minlength=workers).tolist() == [10] * workers
    assert cost == pytest.approx(objective(reference, assignment.tolist(), links), rel=1e-5)


def test_batches_without_samples_or_fields():
    engine = Engine([10, 10], "lru")
    for shape, capacities in (((0, 3), [0, 0]), ((4, 0), [1, 3])):
        engine.prepare(np.zeros(shape, np.uint64))
        assignment, cost, _, _ = engine.joint(int32([1, 10]), int32(capacities), 0)
        assert np.bincount(assignment, minlength=2).tolist() == capacities
        assert cost == 0


def slowest(reference, assignment, links, sample_costs, fixed_costs):
    """The longest time of a worker; caches are so large that nothing is evicted."""
    plans = copy.deepcopy(reference).commit(assignment.tolist())
    operations = [sum(len(p[kind]) for kind in ("pulls", "update_rows", "update_gradients")) for p in plans]
    samples = np.bincount(assignment, minlength=len(links))
    return max(np.array(operations) * links + samples * sample_costs + fixed_costs)


@pytest.mark.parametrize("workers", [2, 5, 8])
def test_samples_move_on_from_workers_that_would_be_late(workers):
    rng = random.Random(workers)
    gains = []
    for _ in range(6):
        engine, reference = with_history(rng, workers, 80, 40, 4, 12)
        for cache in reference.caches:
            cache.capacity = 10**6  # what is evicted is not foreseen
        links = [rng.choice(LINKS) for _ in range(workers)]
        sample_costs = np.array([rng.choice((0.0, 5.0, 50.0)) for _ in range(workers)])
        fixed_costs = np.array([rng.choice((0.0, 0.0, 80.0)) for _ in range(workers)])
        capacities = int32([40 // workers] * workers)
        least, most = capacities // 3, capacities * 2
        arguments = int32(links), capacities, rng.getrandbits(64)
        fixed = engine.joint(*arguments)[0]
        shifted, cost, _, _ = engine.joint(*arguments, limits=(least, most, sample_costs, fixed_costs))
        samples = np.bincount(shifted, minlength=workers)
        assert ((least <= samples) & (samples <= most)).all()
        assert cost == objective(reference, shifted.tolist(), links)
        before, after = (slowest(reference, each, links, sample_costs, fixed_costs) for each in (fixed, shifted))
        gains.append(before / after)
    assert min(gains) >= 1
    assert max(gains) > 1.2


def test_limits_that_leave_no_room_change_no_workload():
    engine, _ = with_history(random.Random(4), 4, 60, 40, 4, 10)
    capacities = int32([25, 5, 10, 0])
    arguments = int32([1, 1, 5, 10]), capacities, 1
    assignment, _, _, _ = engine.joint(*arguments, limits=(capacities, capacities, np.zeros(4), np.zeros(4)))
    assert np.bincount(assignment, minlength=4).tolist() == capacities.tolist()


@pytest.mark.parametrize(
    ("least", "most", "sample_costs", "fixed_costs", "message"),
    [
        ([3, 0], [4, 4], [0, 0], [0, 0], r"capacity of worker 0 is 2, its limits are 3\.\.4"),
        ([0, 0], [2, 1], [0, 0], [0, 0], r"capacity of worker 1 is 2, its limits are 0\.\.1"),
        ([0, -1], [4, 4], [0, 0], [0, 0], r"capacity of worker 1 is 2, its limits are -1\.\.4"),
        ([0, 0], [4, 4], [0, float("nan")], [0, 0], "the sample cost of worker 1 must be finite"),
        ([0, 0], [4, 4], [0, 0], [-1, 0], "the fixed cost of worker 0 must be finite"),
        ([0], [4, 4], [0, 0], [0, 0], "least workloads has 1 elements for 2 workers"),
        ([0, 0], [4, 4], [0, 0], [0], "fixed costs has 1 elements for 2 workers"),
    ],
)
def test_wrong_limits_are_named(least, most, sample_costs, fixed_costs, message):
    engine = Engine([20, 20], "lru")
    engine.prepare(np.arange(12, dtype=np.uint64).reshape(4, 3))
    costs = np.array(sample_costs, float), np.array(fixed_costs, float)
    with pytest.raises(ValueError, match=message):
        engine.joint(int32([1, 1]), int32([2, 2]), 0, limits=(int32(least), int32(most), *costs))


@pytest.mark.parametrize(
    ("links", "capacities", "message"),
    [
        ([1], [2, 2], "link_costs has 1 elements for 2 workers"),
        ([1, 1], [4], "capacities has 1 elements for 2 workers"),
        ([1, -1], [2, 2], "a link cost is negative"),
        ([1, 2**30], [2, 2], "link cost 1073741824 is too large for a sample whose rows have size 3"),
        ([1, 1], [5, -1], "capacity of worker 1 is -1"),
        ([1, 1], [2, 3], "capacities sum to 5, the batch has 4 samples"),
    ],
)
def test_wrong_arguments_are_named(links, capacities, message):
    engine = Engine([20, 20], "lru")
    with pytest.raises(RuntimeError, match="no batch is prepared"):
        engine.joint(int32([1, 1]), int32([2, 2]), 0)
    engine.prepare(np.arange(12, dtype=np.uint64).reshape(4, 3))
    with pytest.raises(ValueError, match=message):
        engine.joint(int32(links), int32(capacities), 0)
