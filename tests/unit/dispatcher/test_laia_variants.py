import time
from collections import Counter

import numpy as np
import pytest

from esd.dispatcher.core.cost_model import RowSizes
from esd.dispatcher.core.decision_time import DecisionTime
from esd.dispatcher.core.mechanisms import DispatchInput
from esd.dispatcher.core.mechanisms.laia import Laia, LaiaTwoChoices, allocate
from esd.dispatcher.core.mechanisms.laia_adaptive import LaiaAdaptive
from esd.dispatcher.core.mechanisms.random import Random
from esd.dispatcher.core.mechanisms.table_profiler import TableProfiler
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.native.engine import Engine
from esd.services.domain.features import numbered_ids
from esd.services.domain.mechanisms import EsdOptions, LaiaOptions, LaiaReading
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.batches import ids_only

CAPACITIES = np.full(3, 8, np.int32)
LINKS = np.ones(3, np.int32)
SIZES = RowSizes([TableSpec("t", 8, OptimizerSpec(), seed=0, init_scale=0.1)], numbered_ids(1))


def problems(engine, batches):
    """Prepares batch after batch; the caller commits."""
    for t, batch in enumerate(batches):
        engine.prepare(batch.by_field)
        lookahead = tuple(batches[t + 1 : t + 2])
        yield DispatchInput(engine, batch, CAPACITIES, t, LINKS, SIZES, lookahead)


def degree_of_infrequency(ids, workers):
    """Share of the rows of one table that occur less often than a worker trains samples."""
    counts = Counter(ids.tolist())
    return sum(count < len(ids) / workers for count in counts.values()) / len(counts)


def test_the_profiler_counts_what_the_stream_held(make_batches):
    batches = make_batches(40, samples=30, fields=5, rows=60, seed=3)
    rng = np.random.default_rng(1)
    profiler = TableProfiler(5, workers=4)
    columns = []
    for batch in batches:
        ids = batch.by_field.copy()
        ids[:, 2] = rng.integers(0, 3, 30)  # a table of three popular rows
        columns.append(ids)
        profiler.add(ids_only(ids))
    seen = np.concatenate(columns)
    expected = [degree_of_infrequency(seen[:, f], 4) for f in range(5)]
    assert profiler.degrees().tolist() == pytest.approx(expected)
    assert 2 not in profiler.ranking.highest(4)
    assert profiler.ranking.highest(5).tolist() == [0, 1, 2, 3, 4]


def test_adaptive_laia_is_laia_when_time_does_not_press(make_job, make_batches):
    batches = make_batches(20, samples=24, fields=4, rows=60, seed=8)
    job = make_job(seed=5, fields=4, workers=3, mechanism="laia")
    engine, adaptive, laia = Engine([60] * 3, "emark"), LaiaAdaptive(job), Laia(job)
    for problem in problems(engine, batches):
        chosen = adaptive.decide(problem).workers
        assert (chosen == laia.decide(problem).workers).all()
        engine.commit(chosen)


def test_adaptive_laia_scores_the_chosen_tables_only(make_job, make_batches):
    """The ids of the other tables could be anything."""
    batches = make_batches(20, samples=24, fields=4, rows=60, seed=8)
    for batch in batches:
        batch.by_field[:, 1] = 77  # the lowest degree of infrequency by far
    job = make_job(seed=5, fields=4, workers=3, mechanism="laia-adaptive")
    engine, adaptive = Engine([60] * 3, "emark"), LaiaAdaptive(job, tables=3)
    for problem in problems(engine, batches):
        chosen = adaptive.decide(problem).workers
        scores = engine.affinity(np.array([0, 2, 3], np.uint32))
        assert (chosen == allocate(scores, CAPACITIES, 5, problem.iteration)).all()
        engine.commit(chosen)


def test_adaptive_laia_scores_fewer_tables_the_less_time_it_has(make_job, make_batches):
    batch = make_batches(1, samples=24, fields=4, rows=60, seed=8)[0]
    engine = Engine([60] * 3, "emark")
    engine.prepare(batch.by_field)
    asked = []

    class Spy:
        def affinity(self, fields=None, *, latest=False):
            asked.append(4 if fields is None else len(fields))
            return engine.affinity(fields, latest=latest)

    adaptive = LaiaAdaptive(make_job(seed=5, fields=4, workers=3, mechanism="laia-adaptive"))
    for t, budget in enumerate([1000.0, 1000.0, 0.0]):
        clock = DecisionTime(time.perf_counter() + budget)
        adaptive.decide(DispatchInput(Spy(), batch, CAPACITIES, t, LINKS, SIZES, time=clock))
    assert asked == [4, 4, 1]


def test_affinity_over_some_fields_counts_their_ids_only(make_job, make_batches):
    *history, last = make_batches(12, samples=24, fields=4, rows=60, seed=8)
    engine, random = Engine([60] * 3, "emark"), Random(make_job(seed=2))
    for problem in problems(engine, history):
        engine.commit(random.decide(problem).workers)
    last.by_field[:, 3] = last.by_field[:, 0]  # a repeat counts in its first field
    engine.prepare(np.ascontiguousarray(last.by_field[:, [0, 2]]))
    expected = engine.affinity()
    engine.prepare(last.by_field)
    assert (engine.affinity(np.array([0, 2, 3], np.uint32)) == expected).all()
    assert not engine.affinity(np.array([], np.uint32)).any()
    with pytest.raises(ValueError, match="field 4 is chosen, the batch has 4"):
        engine.affinity(np.array([4], np.uint32))


@pytest.mark.parametrize("reading", LaiaReading)
def test_two_choices_score_the_next_batch_as_it_will_be(make_job, make_batches, reading):
    """With caches that hold everything the foreseen scores of the next batch are the real ones."""
    batches = make_batches(12, samples=24, fields=4, rows=60, seed=8)
    for batch, before in zip(batches[1::2], batches[::2], strict=True):
        batch.by_field[:20] = before.by_field[:20]  # samples whose ids are all trained before
    job = make_job(seed=5, mechanism="laia-two-choices", mechanism_options=LaiaOptions(reading))
    engine, two_choices, kept = Engine([60] * 3, "emark"), LaiaTwoChoices(job), Counter()
    latest = reading is LaiaReading.TEXT
    for problem in problems(engine, batches):
        before = engine.snapshot()
        scores, outcomes = engine.affinity(latest=latest), {}
        first = allocate(scores, CAPACITIES, 5, problem.iteration)
        second = allocate(scores, CAPACITIES, (5 + 0x9E3779B97F4A7C15) % 2**64, problem.iteration)
        for name, workers in (("second", second), ("first", first)):
            if problem.lookahead:
                engine.commit(workers)
                engine.prepare(problem.lookahead[0].by_field)
                later = engine.affinity(latest=latest)
                best = allocate(later, CAPACITIES, 5, problem.iteration + 1)
                outcomes[name] = sum(int(s[j]) for s, j in zip(scores, workers, strict=True))
                outcomes[name] += sum(int(s[j]) for s, j in zip(later, best, strict=True))
                engine.restore(before)
                engine.prepare(problem.batch.by_field)
        better = "second" if outcomes and outcomes["second"] > outcomes["first"] else "first"
        chosen = two_choices.decide(problem).workers
        assert (chosen == {"first": first, "second": second}[better]).all()
        kept[better] += 1
        engine.commit(chosen)
    assert kept["second"] > 0


def test_the_simulator_looks_as_far_ahead_as_the_mechanism(make_job, make_batches):
    batches = make_batches(7, samples=16, fields=3, rows=80, seed=2)
    seen = []

    class Spy(Random):
        lookahead = 2

        def decide(self, problem):
            seen.append([later.ids.tolist() for later in problem.lookahead])
            return super().decide(problem)

    simulate(Planner(make_job(), [1e6] * 4, [50] * 4, mechanism=Spy(make_job())), iter(batches))
    assert seen == [[b.ids.tolist() for b in batches[t + 1 : t + 3]] for t in range(7)]


def test_priced_heuristic_is_nearer_to_the_optimum(make_job, make_batches):
    """alpha = 0: Heu decides everything; all three pay expected cost on their own history."""
    stream = make_batches(60, samples=64, fields=6, rows=3000, seed=1)
    job = {"batch_size": 64, "fields": 6}
    bandwidths = [625e6, 625e6, 62.5e6, 62.5e6]
    costs = {
        (mechanism, alpha): simulate(
            Planner(make_job(mechanism=mechanism, mechanism_options=EsdOptions(alpha), **job), bandwidths, [400] * 4),
            stream,
        ).cost_seconds
        for mechanism, alpha in (("esd", 0.0), ("esd-priced", 0.0), ("esd", 1.0))
    }
    assert costs["esd-priced", 0.0] < costs["esd", 0.0]
    assert costs["esd-priced", 0.0] < 1.05 * costs["esd", 1.0]
