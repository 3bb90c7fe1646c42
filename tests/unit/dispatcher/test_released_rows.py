"""The state of a planner follows the caches: rows that no worker caches leave it, and continue with the stored rows."""

import numpy as np
import pytest

from esd.dispatcher.core import planner as planner_module
from esd.dispatcher.core.mechanisms import MECHANISMS
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import with_lookahead
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import JointOptions
from esd.services.domain.plans import IterationPlan
from esd.services.domain.sync import parse_sync

BANDWIDTHS = [625e6, 625e6, 62.5e6]
CACHE_ROWS = [49, 55, 60]
SCALABLE = sorted(set(MECHANISMS) - {"brute-force"})


@pytest.fixture(autouse=True)
def release_at_once(monkeypatch):
    for spare in ("_SPARE_ROWS", "_MANY_SPARE_ROWS"):
        monkeypatch.setattr(planner_module, spare, 0)


@pytest.mark.parametrize(("mechanism", "window"), [(each, 1 + at % 3) for at, each in enumerate(SCALABLE)])
def test_plans_train_the_model_of_a_single_process(make_job, make_batches, make_cluster, mechanism, window):
    """The cluster checks that a row which comes back is pulled when the server has its latest value for sure."""
    ahead = {"mechanism_options": JointOptions(horizon=3)} if mechanism == "joint" else {}
    job = make_job(workers=3, mechanism=mechanism, window=window, **ahead)
    planner, cluster = Planner(job, BANDWIDTHS, CACHE_ROWS), make_cluster(CACHE_ROWS, window=window)
    batches = make_batches(80, samples=16, fields=3, rows=600, seed=4)
    for batch, later in with_lookahead(batches, planner.lookahead):
        decision = planner.plan(batch, later)
        cluster.run(batch, decision.assignment, decision.plans)
    assert cluster.continued.total() > 100
    assert planner.rows < 3 * sum(CACHE_ROWS) < len(np.unique([batch.ids for batch in batches]))
    cluster.flush(planner.flush())


def moves(plan: IterationPlan) -> list[list[int]]:
    transfers = (
        plan.update_rows,
        plan.update_gradients.rows,
        plan.evict_rows,
        plan.evict_gradients.rows,
        plan.drops,
        plan.pulls,
    )
    return [column.tolist() for each in transfers for column in (each.ids, each.slots)]


@pytest.mark.parametrize(("mechanism", "policy"), [("joint", "reuse"), ("laia", "static"), ("esd", "emark")])
@pytest.mark.parametrize(
    "way", ["on-demand", "full", "write-through", "proactive", "replicated:6", "bounded:0,0", "bounded:4,4", "none"]
)
def test_it_decides_as_a_planner_that_knows_all_rows(make_job, make_batches, monkeypatch, mechanism, policy, way):
    """Assignments, evictions, slots and moved bytes are the same; versions differ."""
    job = make_job(workers=3, mechanism=mechanism, policy=policy, sync=parse_sync(way))
    batches = make_batches(130, samples=16, fields=3, rows=600, seed=4)

    def run(spare: int) -> tuple[list[tuple], int]:
        monkeypatch.setattr(planner_module, "_SPARE_ROWS", spare)
        planner, decided = Planner(job, BANDWIDTHS, CACHE_ROWS), []
        for iteration, batch in enumerate(batches):
            if iteration == 70:
                planner = Planner(job, BANDWIDTHS, CACHE_ROWS, snapshot=planner.checkpoint()[1])
            decision = planner.plan(batch)
            moved = decision.moved_bytes.total.tolist()
            decided.append((decision.assignment.tolist(), moved, [moves(plan) for plan in decision.plans]))
        return decided, planner.rows

    (released, few), (known, many) = run(0), run(1 << 20)
    assert few < many
    assert released == known


@pytest.mark.parametrize("way", ["on-demand", "replicated:6", "bounded:4,4"])
@pytest.mark.parametrize("warm", [True, False])
def test_a_snapshot_goes_on_as_if_nothing_had_been(make_job, make_batches, way, warm):
    """With empty caches two planners go on alike from it; the second one has had another past."""
    job = make_job(workers=3, mechanism="joint", policy="reuse", sync=parse_sync(way))
    batches = make_batches(90, samples=16, fields=3, rows=600, seed=4)
    first = Planner(job, BANDWIDTHS, CACHE_ROWS)
    for batch in batches[:50]:
        first.plan(batch)
    snapshot = first.checkpoint()[1]
    second = Planner(job, BANDWIDTHS, CACHE_ROWS, snapshot=snapshot, warm=warm)
    if not warm:
        first = Planner(job, BANDWIDTHS, CACHE_ROWS, snapshot=snapshot, warm=False)
    for batch in batches[50:]:
        assert first.plan(batch).messages == second.plan(batch).messages
    assert first.checkpoint()[1].engine == second.checkpoint()[1].engine


def new_ids(count: int, samples: int, fields: int) -> list[SampleBatch]:
    ids = np.random.default_rng(0).integers(0, 2**64, (count, samples, fields), np.uint64)
    empty, labels = np.empty((samples, 0), np.float32), np.zeros(samples, np.float32)
    return [SampleBatch.of_fields(each, empty, labels) for each in ids]


@pytest.mark.parametrize("way", ["on-demand", "full", "proactive", "replicated:6", "bounded:4,4", "none"])
def test_ever_new_ids_take_no_memory(make_job, way):
    """Neither the planner nor its snapshot grows, also where a link is never idle and pushes pile up."""
    job = make_job(workers=3, batch_size=60, mechanism="laia", sync=parse_sync(way))
    planner, sizes = Planner(job, BANDWIDTHS, [1000] * 3), {}
    for iteration, batch in enumerate(new_ids(400, 60, 3)):
        planner.plan(batch)
        if iteration in (150, 399):
            engine = planner._engine
            sizes[iteration] = (engine.memory_bytes, len(planner.checkpoint()[1].engine), planner.rows)
    memory, snapshot, rows = (later / earlier for earlier, later in zip(*sizes.values(), strict=True))
    assert max(memory, snapshot, rows) < 1.1
    assert sizes[399][2] < 16_000 < 400 * 180


def test_a_limit_of_rows_needs_a_planner_that_knows_them(make_job, make_batches):
    job = make_job(workers=3)
    planner = Planner(job, BANDWIDTHS, CACHE_ROWS)
    batches = make_batches(60, samples=16, fields=3, rows=600, seed=4)
    for batch in batches:
        planner.plan(batch)
    snapshot = planner.checkpoint()[1]
    limited = make_job(workers=3, max_rows=100_000)
    with pytest.raises(InvalidArgument, match=r"go on without max_rows \(--max-rows\)"):
        Planner(limited, BANDWIDTHS, CACHE_ROWS, snapshot=snapshot)
    planner = Planner(limited, BANDWIDTHS, CACHE_ROWS)
    for batch in batches:
        planner.plan(batch)
    assert planner.rows == len(np.unique([batch.ids for batch in batches]))
