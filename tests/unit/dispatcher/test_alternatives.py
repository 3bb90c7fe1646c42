"""Alternatives against plain models on dicts, and against on-demand synchronisation where both must agree."""

from collections import defaultdict

import numpy as np
import pytest

from esd.dispatcher.core.mechanisms import Replay
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.alternatives import Cluster, get_alternative, most_popular, simulate_alternative
from esd.dispatcher.simulator.alternatives.alternative import Trained
from esd.dispatcher.simulator.alternatives.cached_rows import LruCaches, RowNumbers
from esd.dispatcher.simulator.simulate import trace_batches
from esd.services.domain.errors import InvalidArgument, ResourceExhausted

BANDWIDTHS = [4e6, 2e6, 1e6]
CAPACITIES = [30, 25, 20]


@pytest.fixture
def batches(make_batches):
    return make_batches(40, samples=12, fields=3, rows=60, seed=3)


def planner_for(make_job, **changes):
    job = make_job(**({"workers": 3, "batch_size": 12, "policy": "lru"} | changes))
    return Planner(job, BANDWIDTHS, CAPACITIES)


def cluster_of(planner, profile=(), compute=(0.0, 0.0, 0.0)):
    return Cluster(CAPACITIES, planner.cost_model.transfer_seconds, compute, np.array(profile, np.uint64))


def steps(make_job, batches, name, **changes):
    """The alternative's traffic, iteration by iteration, with the decisions behind it."""
    planner = planner_for(make_job, **changes)
    alternative = get_alternative(name, cluster_of(planner, [b.ids for b in batches]))
    for t, batch in enumerate(batches):
        decision = planner.plan(batch)
        lookahead = tuple(batches[t + 1 : t + 1 + alternative.lookahead])
        yield batch, decision, alternative.step(Trained(batch, decision, lookahead)), alternative


class PlainHet:
    """Bounded staleness on sets: a copy is the set of updates that it contains."""

    def __init__(self, bound, order):
        self.bound, self.order, self.now = bound, order, 0
        self.server = defaultdict(set)
        self.trained = defaultdict(set)
        self.copies = [{} for _ in CAPACITIES]  # id -> [updates known to be at the server, own updates]
        self.last_use = [{} for _ in CAPACITIES]

    def push(self, j, x):
        known, own = self.copies[j][x]
        self.server[x] |= own
        self.copies[j][x] = [known | own, set()]
        return bool(own)

    def step(self, ids, assignment):
        """Pulls, update pushes and evict pushes by worker, and the number of stale reads."""
        rows = [sorted(set(ids[assignment == j].ravel().tolist())) for j in range(3)]
        old = [[x for x in rows[j] if x in self.copies[j] and self.too_old(j, x)] for j in range(3)]
        missed = [[x for x in rows[j] if x not in self.copies[j]] + old[j] for j in range(3)]
        pushes = [sum([self.push(j, x) for x in old[j]]) for j in range(3)]
        evictions = [self.bring_in(j, rows[j], missed[j]) for j in range(3)]
        stale = sum(self.trained[x] != set().union(*self.copies[j][x]) for j in range(3) for x in rows[j])
        self.train(rows)
        for j in range(3):
            pushes[j] += sum([self.push(j, x) for x in rows[j] if len(self.copies[j][x][1]) > self.bound])
        self.now += 1
        return [len(m) for m in missed], pushes, evictions, stale

    def too_old(self, j, x):
        return len(self.server[x] - self.copies[j][x][0]) > self.bound

    def bring_in(self, j, rows, missed):
        pushed = 0
        for x in rows:
            self.copies[j].setdefault(x, [set(), set()])
            self.last_use[j][x] = self.now
        while len(self.copies[j]) > CAPACITIES[j]:
            victim = min(self.copies[j], key=lambda x: (self.last_use[j][x], self.order[x]))
            pushed += self.push(j, victim)
            del self.copies[j][victim]
        for x in missed:
            self.copies[j][x][0] = set(self.server[x])
        return pushed

    def train(self, rows):
        for j in range(3):
            for x in rows[j]:
                self.copies[j][x][1] = self.copies[j][x][1] | {(j, self.now)}
                self.trained[x].add((j, self.now))


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_het_is_what_its_plain_model_is(make_job, batches, bound):
    numbers, stale_reads, reads = RowNumbers(), 0, 0
    plain = PlainHet(bound, _Order(numbers))
    for batch, decision, traffic, het in steps(make_job, batches, f"het:{bound}"):  # noqa: B007
        for j in range(3):
            numbers.of(batch.by_field[decision.assignment == j])
        pulls, pushes, evictions, stale = plain.step(batch.by_field, decision.assignment)
        assert traffic.operations.miss_pull.tolist() == pulls
        assert traffic.operations.update_push.tolist() == pushes
        assert traffic.operations.evict_push.tolist() == evictions
        stale_reads += stale
        reads += traffic.lookups
    assert het.figures()["stale_read_share"] == pytest.approx(stale_reads / reads)
    assert (stale_reads == 0) == (bound == 0)


class _Order:
    """The order in which ids came, which breaks ties."""

    def __init__(self, numbers):
        self._numbers = numbers

    def __getitem__(self, x):
        return int(self._numbers.of(np.array([x], np.uint64))[0])


def test_full_synchronisation_pulls_what_on_demand_pulls_and_pushes_everything(make_job, batches):
    """With caches that hold everything; on-demand pushes less, for it leaves owned rows where they are."""
    for batch, decision, traffic, _ in steps(make_job, batches, "het:0"):
        rows = [np.unique(batch.by_field[decision.assignment == j]) for j in range(3)]
        assert traffic.operations.update_push.tolist() == [len(of_worker) for of_worker in rows]
        assert not traffic.operations.evict_push.any()
        if decision.iteration < 2:  # nothing has been evicted yet
            assert (traffic.operations.miss_pull == decision.operations.miss_pull).all()


@pytest.mark.parametrize(("second", "vanilla", "on_demand"), [([0, 1], (3, 3), (3, 3)), ([1, 0], (0, 3), (0, 0))])
def test_vanilla_pushes_what_scheduling_need_not_even_pull(make_job, second, vanilla, on_demand):
    """As in Herald Fig. 5: the samples of iteration 0 come again in the other order, and go astray or home."""
    trace = np.array([[1, 2], [3, 3], [3, 3], [1, 2]], np.uint64)
    job = make_job(workers=2, batch_size=2, fields=2, policy="lru")
    table = np.array([[0, 1], second], np.int32)
    planner = Planner(job, [1e6, 1e6], [3, 3], mechanism=Replay(table, 2))
    cluster = Cluster([3, 3], planner.cost_model.transfer_seconds, [0, 0], np.empty(0, np.uint64))
    full = get_alternative("het:0", cluster)
    for batch in trace_batches(trace, 2):
        decision = planner.plan(batch)
        traffic = full.step(Trained(batch, decision))
    for operations, expected in ((traffic.operations, vanilla), (decision.operations, on_demand)):
        assert (operations.miss_pull.sum(), operations.update_push.sum()) == expected


@pytest.mark.parametrize("name", ["no-cache", "no-coalescing"])
def test_without_a_cache_every_row_goes_both_ways(make_job, batches, name):
    for batch, decision, traffic, _ in steps(make_job, batches, name):
        micro = [batch.by_field[decision.assignment == j] for j in range(3)]
        expected = [len(set(ids.ravel().tolist())) if name == "no-cache" else ids.size for ids in micro]
        assert traffic.operations.miss_pull.tolist() == traffic.operations.update_push.tolist() == expected


def test_fae_reduces_hot_rows_and_moves_cold_ones(make_job, batches):
    popularity = defaultdict(int)
    for batch in batches:
        for x in batch.ids.ravel().tolist():
            popularity[x] += 1
    hot = set(sorted(popularity, key=lambda x: (-popularity[x], x))[:20])
    for batch, decision, traffic, fae in steps(make_job, batches, "fae"):  # noqa: B007
        micro = [set(batch.by_field[decision.assignment == j].ravel().tolist()) for j in range(3)]
        assert traffic.operations.miss_pull.tolist() == [len(ids - hot) for ids in micro]
        assert traffic.peer_rows.tolist() == pytest.approx([4 / 3 * len(set().union(*micro) & hot)] * 3)
        assert traffic.hits == sum(len(ids & hot) for ids in micro)
    assert fae.figures()["hot_rows"] == 20


def test_the_most_popular_ids_win_ties_by_id():
    assert most_popular(np.array([[5, 5], [9, 7], [7, 1]], np.uint64), 3).tolist() == [5, 7, 1]


class PlainFlushing:
    """P2F on dicts and sorted lists."""

    def __init__(self, transfer, compute, numbers):
        self.transfer, self.compute, self.numbers = transfer, compute, numbers
        self.pending = [set() for _ in transfer]
        self.stall = self.busy = 0.0

    def step(self, t, ids, assignment, lookahead_ids, pulled):
        micro = [set(ids[assignment == j].ravel().tolist()) for j in range(3)]
        due = [self.pending[j] & set(ids.ravel().tolist()) for j in range(3)]
        self.stall += max(T * len(d) for T, d in zip(self.transfer, due, strict=True))
        times = [self.transfer[j] * pulled[j] + self.compute[j] * (assignment == j).sum() for j in range(3)]
        self.busy += max(times)
        flushed = [len(d) for d in due]
        for j in range(3):
            self.pending[j] -= due[j]

            def priority(x):
                steps = [s for s, later in enumerate(lookahead_ids) if x in later]
                return (steps[0] if steps else 10**6, self.numbers[x])

            idle = int((max(times) - self.transfer[j] * pulled[j]) / self.transfer[j])
            first = sorted(self.pending[j], key=priority)[:idle]
            self.pending[j] -= set(first)
            flushed[j] += len(first)
            self.pending[j] |= micro[j]
        return flushed


def test_p2f_flushes_in_the_order_in_which_rows_are_read(make_job, batches):
    planner = planner_for(make_job)
    compute = [4e-5, 4e-5, 4e-5]
    p2f = get_alternative("p2f:10", cluster_of(planner, compute=compute))
    numbers = RowNumbers()
    plain = PlainFlushing(planner.cost_model.transfer_seconds, compute, _Order(numbers))
    for t, batch in enumerate(batches):
        decision = planner.plan(batch)
        lookahead = tuple(batches[t + 1 : t + 11])
        traffic = p2f.step(Trained(batch, decision, lookahead))
        numbers.of(batch.ids)
        for ahead in lookahead:
            numbers.of(ahead.ids)
        later = [set(ahead.ids.tolist()) for ahead in lookahead]
        flushed = plain.step(t, batch.by_field, decision.assignment, later, traffic.operations.miss_pull)
        assert traffic.operations.update_push.tolist() == flushed
    figures = p2f.figures()
    assert (figures["stall_seconds"], figures["busy_seconds"]) == pytest.approx((plain.stall, plain.busy))


def test_p2f_stalls_less_than_write_through(make_job, batches):
    totals = {
        name: simulate_alternative(
            planner_for(make_job),
            batches,
            get_alternative(name, cluster_of(planner_for(make_job), compute=[1e-4] * 3)),
            sample_seconds=[1e-4] * 3,
        )
        for name in ("p2f:0", "p2f:10")
    }
    assert totals["p2f:10"].figures["stall_seconds"] < 0.7 * totals["p2f:0"].figures["stall_seconds"]
    assert totals["p2f:10"].figures["busy_seconds"] == pytest.approx(totals["p2f:0"].figures["busy_seconds"])
    assert totals["p2f:0"].figures["pending_rows"] == 0
    # what waits together is flushed together: never more than write-through
    assert (totals["p2f:10"].operations.update_push <= totals["p2f:0"].operations.update_push).all()


@pytest.mark.parametrize("name", ["p2f:0", "p2f:10"])
def test_flushing_pulls_what_full_synchronisation_pulls(make_job, batches, name):
    """When updates are flushed changes nothing about which copies are the latest; no cache overflows here."""
    cluster = Cluster([60] * 3, planner_for(make_job).cost_model.transfer_seconds, [0.0] * 3, np.empty(0, np.uint64))
    full, flushing = (
        simulate_alternative(planner_for(make_job), batches, get_alternative(kind, cluster)) for kind in ("het:0", name)
    )
    assert (flushing.operations.miss_pull == full.operations.miss_pull).all()
    assert flushing.hits == full.hits


def test_totals_are_sums_after_the_warm_up(make_job, batches):
    def run(warm_up):
        planner = planner_for(make_job)
        return simulate_alternative(
            planner,
            batches,
            get_alternative("het:0", cluster_of(planner)),
            sample_seconds=[1e-3] * 3,
            warm_up=warm_up,
        )

    traffics = [traffic for _, _, traffic, _ in steps(make_job, batches, "het:0")]
    seconds = [planner_for(make_job).cost_model.transfer_seconds * traffic.rows for traffic in traffics]
    whole, late = run(0), run(15)
    assert (whole.iterations, late.iterations, late.samples) == (40, 25, 300)
    assert whole.cost_seconds == pytest.approx(sum(s.sum() for s in seconds))
    assert late.cost_seconds == pytest.approx(sum(s.sum() for s in seconds[15:]))
    assert late.makespan_seconds == pytest.approx(sum((s + 4e-3).max() for s in seconds[15:]))
    assert late.lookups == sum(t.lookups for t in traffics[15:])


@pytest.mark.parametrize("name", ["het:", "het:-1", "het", "p2f", "sync", ""])
def test_unknown_names_are_refused(make_job, name):
    with pytest.raises(InvalidArgument, match="is unknown; known are het:S, fae"):
        get_alternative(name, cluster_of(planner_for(make_job)))


def test_a_cache_too_small_is_refused():
    caches = LruCaches([2])
    caches.grow(3)
    with pytest.raises(ResourceExhausted, match="worker 0 caches 2 rows, iteration 4 needs 3"):
        caches.use(0, np.arange(3), 4)
