"""Bounded staleness as the engine plans it: followed update by update, and against HET's counts by other code."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.alternatives import Cluster, get_alternative
from esd.dispatcher.simulator.alternatives.alternative import Trained
from esd.native import engine
from esd.native.engine import Engine
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import RowLimitPolicy
from esd.services.domain.schedules import Schedule
from esd.services.domain.sync import Bounded
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.services.domain.versions import trainings

BANDWIDTHS = [4e6, 2e6, 1e6]
MOST = [0, 1, 2, 4, 8, 16, 32, 64]  # updates that a read of each bucket may lack; the last bucket has no limit


@dataclass
class Row:
    """A row at the parameter server: its version, and the updates (worker, iteration) that are in it."""

    version: int = 0
    updates: frozenset = frozenset()


@dataclass
class Copy:
    version: int  # that was pulled, or that its last push made
    updates: set  # that it contains
    kept: set = field(default_factory=set)  # own ones that are not pushed
    drifted: bool = False  # the server took one step for several of its own


@dataclass
class Cluster3:
    """Follows plans as workers and the parameter server do, and refuses a plan that breaks a promise."""

    pull_bound: int
    push_bound: int
    additive: bool
    rows: dict = field(default_factory=dict)
    every: dict = field(default_factory=dict)  # all updates of a row, wherever they are
    caches: list = field(default_factory=lambda: [{}, {}, {}])
    flushed: bool = False

    def push(self, pushes):
        """Makes one version of each pushed row: (worker, gradients) each."""
        of_rows = {}
        for worker, gradients in pushes:
            columns = gradients.rows.ids, gradients.rows.versions, gradients.contributors, gradients.steps
            for row, version, contributors, step in zip(*(column.tolist() for column in columns), strict=True):
                of_rows.setdefault(row, {})[worker] = (version, contributors, step)
        for row, parts in of_rows.items():
            server = self.rows.setdefault(row, Row())
            assert len(set(parts.values())) == 1
            ((version, contributors, step),) = set(parts.values())
            assert trainings(np.array([version]))[0] == server.version + 1
            assert contributors == sum(1 << worker for worker in parts)
            assert step == 1 + max(iteration for _, iteration in self.every[row])
            for worker in parts:
                copy = self.caches[worker][row]
                assert copy.kept
                assert not copy.kept & server.updates
                copy.drifted |= not self.additive and (len(copy.kept) > 1 or (worker, step - 1) not in copy.kept)
                server.updates |= copy.kept
                copy.kept, copy.version = set(), version
            server.version += 1

    def iterate(self, decision, reads):
        plans = decision.plans
        for worker, plan in enumerate(plans):
            for row in plan.discards.ids.tolist():
                del self.caches[worker][row]
        for row in plans[0].forgotten.tolist():
            self.rows.pop(row, None)
            self.every.pop(row, None)
        self.push([(j, each) for j, plan in enumerate(plans) for each in (plan.update_gradients, plan.evict_gradients)])
        for worker, plan in enumerate(plans):
            assert not len(plan.update_rows) + len(plan.evict_rows)
            for row in [*plan.evict_gradients.rows.ids.tolist(), *plan.drops.ids.tolist()]:
                assert not self.caches[worker].pop(row).kept
            for row, version in zip(plan.pulls.ids.tolist(), plan.pulls.versions, strict=True):
                server = self.rows.setdefault(row, Row())
                assert trainings(np.array([version]))[0] == server.version
                assert row not in self.caches[worker] or not self.caches[worker][row].kept
                self.caches[worker][row] = Copy(int(version), set(server.updates))
            self.read(worker, plan, reads)
        for worker, plan in enumerate(plans):
            for row in plan.unique_ids.tolist():
                copy, update = self.caches[worker][row], (worker, plan.iteration)
                copy.kept.add(update)
                copy.updates.add(update)
                self.every.setdefault(row, set()).add(update)

    def read(self, worker, plan, reads):
        assert (plan.unique_contributors == 1 << worker).all()
        for row, version in zip(plan.unique_ids.tolist(), plan.unique_versions.tolist(), strict=True):
            copy = self.caches[worker][row]
            assert copy.version == version
            assert not copy.drifted
            assert len(self.rows[row].updates - copy.updates) <= self.pull_bound
            assert len(copy.kept) <= self.push_bound
            reads.append(len(self.every.get(row, set()) - copy.updates))

    def flush(self, flushes):
        self.push([(worker, flush.gradients) for worker, flush in enumerate(flushes)])
        for cache in self.caches:
            assert not any(copy.kept for copy in cache.values())
        for row, updates in self.every.items():
            assert self.rows[row].updates == updates  # nothing is lost, nothing comes twice


def assert_counted(decision, reads):
    *counts, missing, most = decision.columns.figures.tolist()
    places = np.searchsorted(MOST, reads)
    assert counts == np.bincount(places, minlength=len(MOST) + 1).tolist()
    assert (missing, most) == (sum(reads), max(reads))


ADAGRAD = OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD, 0.1)
JOBS = {
    "sums": {},
    "adagrad": {"optimizer": ADAGRAD},
    "limited norms": {"optimizer": OptimizerSpec(max_norm=1.0)},
    "rates change": {"schedule": Schedule(warm_up=5)},
    "full table": {"max_rows": 170, "at_max_rows": RowLimitPolicy.FORGET},
    "lists": {"longest": 3, "policy": "lru"},
}


@pytest.fixture
def bounded_job(make_job):
    """A job of 3 workers with these bounds."""

    def make(pull, push, optimizer=None, **changes):
        job = make_job(workers=3, batch_size=12, sync=Bounded(pull, push), **changes)
        return job if optimizer is None else replace(job, tables=(replace(job.table, optimizer=optimizer),))

    return make


def assert_early_moves_are_free(decision, previous):
    """Rows that move while the iteration before trains are none of its rows."""
    for plan in decision.plans:
        for moves in (plan.update_gradients.rows, plan.evict_gradients.rows, plan.pulls):
            assert not previous & set(moves.ids[: moves.early].tolist())
            assert not moves.early or len(moves)


@pytest.mark.parametrize("options", JOBS)
@pytest.mark.parametrize("bounds", [(0, 0), (3, 0), (0, 3), (5, 2)])
def test_every_update_arrives_once_and_no_copy_is_staler_than_its_bound(bounded_job, make_batches, bounds, options):
    job = bounded_job(*bounds, **JOBS[options])
    planner = Planner(job, BANDWIDTHS, [70, 60, 50])
    cluster = Cluster3(*bounds, additive=options in ("sums", "full table", "lists"))
    stale, previous = 0, set()
    longest = JOBS[options].get("longest")
    for t, batch in enumerate(make_batches(60, samples=12, fields=3, rows=200, seed=3, longest=longest)):
        if t in (20, 21, 40):
            cluster.flush(planner.checkpoint()[0])
        decision = planner.plan(batch)
        reads = []
        cluster.iterate(decision, reads)
        assert_counted(decision, reads)
        assert_early_moves_are_free(decision, previous)
        previous = set(batch.ids.ravel().tolist())
        assert max(reads) <= bounds[0] + 2 * bounds[1]
        stale += sum(missing > 0 for missing in reads)
    cluster.flush(planner.flush())
    assert (stale > 20) == (bounds != (0, 0))
    assert not any(len(flush.gradients) for flush in planner.flush())


@pytest.mark.parametrize("bound", [0, 2, 7])
def test_the_counts_are_those_of_het(bounded_job, make_batches, bound):
    """As the simulator counts HET by other code, with caches that hold everything.

    That code judges a copy before the pushes of the same iteration, the engine behind them, which is a little stricter.
    """
    capacities = [200, 200, 200]
    planner = Planner(bounded_job(bound, bound, policy="lru"), BANDWIDTHS, capacities)
    het = get_alternative(f"het:{bound}", Cluster(capacities, np.ones(3), np.zeros(3), np.empty(0, np.uint64)))
    moved = np.zeros((2, 2), np.int64)
    for batch in make_batches(200, samples=12, fields=3, rows=200, seed=3):
        decision = planner.plan(batch)
        counted = decision.operations, het.step(Trained(batch, decision)).operations
        moved += [(each.miss_pull.sum(), each.update_push.sum()) for each in counted]
    assert moved.min() > 500
    np.testing.assert_allclose(moved[0], moved[1], rtol=0.03)
    assert bound or moved[0, 0] == moved[1, 0]


def test_a_worker_goes_on_from_a_checkpoint_as_if_nothing_had_happened(bounded_job, make_batches):
    """The plans behind a checkpoint are the same, byte for byte, whether the state was kept or read."""
    for optimizer in (None, ADAGRAD):
        job = bounded_job(4, 2, optimizer)
        planner = Planner(job, BANDWIDTHS, [70, 60, 50])
        batches = make_batches(60, samples=12, fields=3, rows=200, seed=3)
        for batch in batches[:30]:
            planner.plan(batch)
        _, snapshot = planner.checkpoint()
        again = Planner(job, BANDWIDTHS, [70, 60, 50], snapshot=snapshot)
        assert sum(len(reload.outdated) for reload in again.reloads()) > 0
        for batch in batches[30:]:
            assert planner.plan(batch).messages == again.plan(batch).messages


def test_ways_to_synchronise_take_turns_at_checkpoints(make_job, bounded_job, make_batches):
    """A checkpoint of one way is gone on from in another, at the versions that the parameter server has."""
    batches = make_batches(60, samples=12, fields=3, rows=200, seed=3)
    jobs = [make_job(workers=3, batch_size=12), bounded_job(4, 2), make_job(workers=3, batch_size=12)]
    versions, snapshot = {}, None
    for t, job in enumerate(jobs):
        planner = Planner(job, BANDWIDTHS, [70, 60, 50], snapshot=snapshot)
        for batch in batches[20 * t : 20 * t + 20]:
            decision = planner.plan(batch)
            for plan in decision.plans:
                for moves in (plan.update_gradients.rows, plan.evict_gradients.rows, plan.update_rows, plan.evict_rows):
                    versions |= dict(zip(moves.ids.tolist(), moves.versions.tolist(), strict=True))
            for plan in decision.plans:
                pulled = dict(zip(plan.pulls.ids.tolist(), plan.pulls.versions.tolist(), strict=True))
                assert pulled == {row: versions.get(row, 0) for row in pulled}
        flushes, snapshot = planner.checkpoint()
        for flush in flushes:
            for moves in (flush.rows, flush.gradients.rows):
                versions |= dict(zip(moves.ids.tolist(), moves.versions.tolist(), strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pull": -1, "push": 0}, "the pull bound is -1, it must be in 0..10000"),
        ({"pull": 0, "push": 10001}, "the push bound is 10001, it must be in 0..10000"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(options, message):
    with pytest.raises(InvalidArgument, match=message):
        Bounded(**options)


def test_an_engine_refuses_what_it_cannot_count():
    with pytest.raises(ValueError, match="a staleness bound is 10001, the limit is 10000"):
        Engine([4], "lru", sync=engine.Bounded(pull=10001, push=0))
    with pytest.raises(ValueError, match="2 tables are additive or not, there are 1"):
        Engine([4], "lru", sync=engine.Bounded(pull=0, push=0, additive=[True, False]))
    planning = Engine([4], "lru", sync=engine.Bounded(pull=1, push=1))
    planning.prepare(np.array([[1, 2]], np.uint64))
    planning.commit(np.zeros(1, np.int32))
    planning.prepare(np.array([[1, 2]], np.uint64))
    planning.commit(np.zeros(1, np.int32))
    with pytest.raises(RuntimeError, match="gradients are kept back; call flush before snapshot"):
        planning.snapshot()
