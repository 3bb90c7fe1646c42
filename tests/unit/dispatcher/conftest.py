"""An independent cluster for planner tests: it runs plans on dicts and checks docs/semantics.md on the way."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pytest

from esd.dispatcher.core.cost_model import Operations
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import ALL_REDUCE
from esd.services.domain.features import Feature, Pooling, numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.plans import FlushPlan, GradientTransfers, IterationPlan, Transfers
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.worker_sets import listed

Place = tuple[int, int]  # a table and a slot


@dataclass
class Copy:
    """A cached row: a row's value is how often it was trained, a partial gradient how often just now.

    `whole` says whether its optimizer state is there, too, which is all 0 before the first training.
    """

    id: int
    version: int
    value: int
    whole: bool = True
    owned: bool = False
    partial: int | None = None
    target: int = 0  # version that the sum of the partial gradients makes
    contributors: int = 0
    step: int = 0


class Cluster:
    """Workers and a parameter server that follow plans and refuse forbidden ones."""

    def __init__(
        self, cache_rows: Sequence[int], *, several_tables: bool = False, direct: bool = False, window: int = 1
    ) -> None:
        self.cache_rows = cache_rows  # of each table
        self.several_tables = several_tables
        self.direct = direct  # rows that one other worker alone trains go straight to it
        self.sent: dict[tuple[int, int], tuple[int, int, int]] = {}  # receiver, id -> sender, version, value
        self.window = window  # iterations after which a push is durable
        self.pushed: dict[int, int] = {}  # id -> the iteration of its last push
        self.continued: Counter[int] = Counter()  # lives of rows that began with what the server had
        self.caches: list[dict[Place, Copy]] = [{} for _ in cache_rows]
        self.server: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))  # id -> version, value
        self.sums: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # id, target -> worker -> partial
        self.versions: Counter[int] = Counter()  # batches that trained the row
        self.trained: Counter[int] = Counter()  # single-process truth: occurrences in the stream
        self.previous: set[int] = set()  # ids of the previous iteration
        self.freed: list[dict[Place, int]] = []  # per worker: place -> row that left it in this iteration
        self.iteration = 0

    def run(self, batch: SampleBatch, assignment: np.ndarray, plans: Sequence[IterationPlan]) -> Operations:
        """Executes one iteration and returns the operations that its rules demand and the caches caused."""
        rows_of = [set(batch[np.flatnonzero(assignment == j)].ids.tolist()) for j in range(len(self.caches))]
        trainers = {x: sum(1 << j for j, rows in enumerate(rows_of) if x in rows) for x in set().union(*rows_of)}
        assert sorted(np.concatenate([p.positions for p in plans])) == list(range(len(batch)))

        self.freed = [{} for _ in plans]
        update_push = [self._update_pushes(j, plans[j], trainers) for j in range(len(plans))]
        evict_push = [self._evictions(j, plans[j], rows_of[j]) for j in range(len(plans))]
        miss_pull = [self._pulls(j, plans[j], rows_of[j]) for j in range(len(plans))]
        assert not self.sent, "a row was sent to a worker that does not wait for it"
        for j, plan in enumerate(plans):
            assert (assignment[plan.positions] == j).all()
            self._train(j, plan, batch, rows_of[j], trainers)
        for x in trainers:
            self.versions[x] += 1
        self.trained.update(batch.ids.tolist())
        self.previous = set(trainers)
        self.iteration += 1
        return Operations(*(np.array(counts, np.int64) for counts in (miss_pull, update_push, evict_push)))

    def flush(self, plans: Sequence[FlushPlan]) -> None:
        """Pushes all remaining rows; then the server alone must hold the single-process result."""
        for j, plan in enumerate(plans):
            self._push_rows(j, plan.rows)
            self._push_gradients(j, plan.gradients)
        assert not any(copy.owned or copy.partial is not None for cache in self.caches for copy in cache.values())
        assert not self.sums
        assert {x: value for x, (_, value) in self.server.items() if value} == dict(self.trained)
        assert {x: version for x, (version, _) in self.server.items() if version} == dict(self.versions)

    def _update_pushes(self, j: int, plan: IterationPlan, trainers: dict[int, int]) -> int:
        cached = [copy for copy in self.caches[j].values() if copy.id in trainers]
        rows = {copy.id for copy in cached if copy.owned and trainers[copy.id] & ~(1 << j)}
        gradients = {copy.id for copy in cached if copy.partial is not None}
        assert set(plan.update_rows.ids.tolist()) == rows
        assert set(plan.update_gradients.rows.ids.tolist()) == gradients
        direct = {x for x in rows if self.direct and trainers[x].bit_count() == 1}
        sent = plan.update_rows.at(plan.direct_pushes.places)
        assert set(sent.ids.tolist()) == direct
        for x, peer in zip(sent.ids.tolist(), plan.direct_pushes.peers.tolist(), strict=True):
            assert trainers[x] == 1 << peer
            self.sent[peer, x] = (j, 0, 0)
        self._push_rows(j, plan.update_rows)
        self._push_gradients(j, plan.update_gradients)
        return len(rows) + len(gradients)

    def _evictions(self, j: int, plan: IterationPlan, needed: set[int]) -> int:
        self._push_rows(j, plan.evict_rows)
        self._push_gradients(j, plan.evict_gradients)
        for transfers in (plan.evict_rows, plan.evict_gradients.rows, plan.drops):
            for x, slot in zip(transfers.ids.tolist(), transfers.slots.tolist(), strict=True):
                copy = self.caches[j].pop(self._place(x, slot))
                self.freed[j][self._place(x, slot)] = x
                assert copy.id == x
                assert x not in needed
                assert not copy.owned, "an owned row was dropped"
                assert copy.partial is None, "a partial gradient was dropped"
        return len(plan.evict_rows) + len(plan.evict_gradients)

    def _pulls(self, j: int, plan: IterationPlan, needed: set[int]) -> int:
        latest = {copy.id for copy in self.caches[j].values() if copy.version == self.versions[copy.id]}
        assert set(plan.pulls.ids.tolist()) == needed - latest
        self._check_early(plan.pulls, self.freed[j])
        stateless = set(plan.pulls.ids[plan.stateless_pulls()].tolist())
        ids = plan.pulls.ids[plan.direct_pulls.places].tolist()
        senders = dict(zip(ids, plan.direct_pulls.peers.tolist(), strict=True))
        for x, slot, version in _entries(plan.pulls):
            assert slot < self.cache_rows[j]
            self._begin_life(x, version)
            assert version == self.versions[x], "a stale read was planned"
            held = self.server[x]
            if (j, x) in self.sent:
                sender, *held = self.sent.pop((j, x))
                assert senders.pop(x) == sender
                assert x not in stateless
            assert held[0] == version, "whom it comes from does not hold the version to pull"
            occupant = self.caches[j].get(self._place(x, slot))
            assert occupant is None or occupant.id == x
            assert occupant is None or (not occupant.owned and occupant.partial is None)
            self.caches[j][self._place(x, slot)] = Copy(x, *held, whole=x not in stateless or self.versions[x] == 0)
        assert not senders
        return len(plan.pulls)

    def _begin_life(self, x: int, version: int) -> None:
        """Continues with the server's value if the version says so; that must be the latest, with pushes under way."""
        if version == self.versions[x] or version % 2**31 != 2**30:
            return
        assert version > self.versions[x], "a life must be above those before"
        assert self.server[x][0] == self.versions[x], "the server lacks an update"
        assert self.pushed.get(x, self.iteration - self.window) <= self.iteration - self.window, "perhaps not durable"
        assert all(copy.id != x or copy.version < version for cache in self.caches for copy in cache.values())
        self.server[x] = version, self.server[x][1]
        self.versions[x] = version
        self.continued[x] += 1

    def _train(
        self, j: int, plan: IterationPlan, batch: SampleBatch, needed: set[int], trainers: dict[int, int]
    ) -> None:
        assert plan.iteration == self.iteration
        assert plan.batch_size == len(batch)
        assert set(plan.unique_ids.tolist()) == needed
        assert len(plan.unique_ids) == len(needed)
        assert (plan.unique_ids[plan.inverse] == batch[plan.positions].ids).all()
        assert (plan.dense == batch.dense[plan.positions]).all()
        assert (plan.labels == batch.labels[plan.positions]).all()
        gradients = Counter(batch[plan.positions].ids.tolist())
        columns = (plan.unique_ids, plan.unique_slots, plan.unique_versions, plan.unique_contributors)
        for x, slot, version, contributors in zip(*map(listed, columns), strict=True):
            copy = self.caches[j][self._place(x, slot)]
            assert (copy.id, copy.version, version) == (x, self.versions[x], self.versions[x])
            assert copy.partial is None
            assert contributors == trainers[x]
            if contributors == 1 << j:
                assert copy.whole, "a row without optimizer state was trained here"
                copy.value += gradients[x]
                copy.version += 1
                copy.owned = True
            else:
                copy.partial, copy.target = gradients[x], version + 1
                copy.contributors, copy.step = contributors, self.iteration + 1

    def _push_rows(self, j: int, transfers: Transfers) -> None:
        self._check_early(transfers)
        for x, slot, version in _entries(transfers):
            copy = self.caches[j][self._place(x, slot)]
            assert copy.owned
            assert (copy.id, copy.version) == (x, version)
            assert copy.whole, "a row without optimizer state was pushed"
            assert version > self.server[x][0]
            copy.owned = False
            self.pushed[x] = self.iteration
            receiver = next((to for to, row in self.sent if row == x), None)
            if receiver is None:
                self.server[x] = (version, copy.value)
            else:
                self.sent[receiver, x] = (j, version, copy.value)

    def _push_gradients(self, j: int, transfers: GradientTransfers) -> None:
        self._check_early(transfers.rows)
        columns = zip(_entries(transfers.rows), listed(transfers.contributors), transfers.steps.tolist(), strict=True)
        for (x, slot, version), contributors, step in columns:
            copy = self.caches[j][self._place(x, slot)]
            assert copy.partial is not None
            assert (copy.id, copy.target, copy.contributors, copy.step) == (x, version, contributors, step)
            arrived = self.sums[x, version]
            arrived[j] = copy.partial
            self.pushed[x] = self.iteration
            copy.partial = None
            if sum(1 << worker for worker in arrived) == contributors:
                before, value = self.server[x]
                assert before == version - 1
                self.server[x] = (version, value + sum(arrived.values()))
                del self.sums[x, version]

    def _place(self, x: int, slot: int) -> Place:
        """A slot belongs to one table."""
        return x >> 56 if self.several_tables else 0, slot

    def _check_early(self, transfers: Transfers, freed: Mapping[Place, int] = MappingProxyType({})) -> None:
        """Early entries touch no row of the previous iteration, nor a slot that such a row has just left."""
        touches = [
            x in self.previous or freed.get(self._place(x, slot)) in self.previous for x, slot, _ in _entries(transfers)
        ]
        assert touches == [False] * transfers.early + [True] * (len(touches) - transfers.early)


def _entries(transfers: Transfers) -> list[tuple[int, int, int]]:
    return list(zip(transfers.ids.tolist(), transfers.slots.tolist(), transfers.versions.tolist(), strict=True))


def _job(**changes: object) -> JobSpec:
    """A job of 4 workers and 3 fields unless told otherwise; workloads default to equal shares."""
    values: dict = {"workers": 4, "fields": 3, "batch_size": 16, "mechanism": "random", "seed": 7}
    values |= {"policy": "emark", "window": 1} | changes
    fields, longest = values.pop("fields"), values.pop("longest", None)
    values["features"] = numbered_ids(fields)
    if longest is not None:
        values["features"] = tuple(Feature(str(at), 0, Pooling.SUM, longest) for at in range(fields))
    values.setdefault("workloads", equal_workloads(values["batch_size"], values["workers"]))
    sgd = OptimizerSpec()
    return JobSpec(
        name="test",
        dense_sum=ALL_REDUCE,
        dense_features=2,
        tables=(TableSpec("emb", 8, sgd, seed=1, init_scale=0.01),),
        model=ModelSpec("wdl", (8,), sgd),
        parameter_servers=("127.0.0.1:1",),
        **values,
    )


def _batches(
    count: int, samples: int, fields: int, rows: int, seed: int, longest: int | None = None
) -> list[SampleBatch]:
    """Skewed random batches: ids spread over 64 bits, a few of them in most samples.

    With `longest`, every feature has lists of up to so many ids, among them empty ones; samples then repeat ids.
    """
    rng = np.random.default_rng(seed)
    names = rng.integers(0, 2**64, rows, dtype=np.uint64)
    names[:2] = 0, 2**64 - 1
    picks = (rows * rng.random((count, samples, fields)) ** 3).astype(np.int64)
    dense = rng.random((count, samples, 2), dtype=np.float32)
    labels = rng.integers(0, 2, (count, samples)).astype(np.float32)
    plain = [SampleBatch.of_fields(names[picks[t]], dense[t], labels[t]) for t in range(count)]
    return plain if longest is None else [_with_lists(batch, rng, names, longest) for batch in plain]


def _with_lists(batch: SampleBatch, rng: np.random.Generator, names: np.ndarray, longest: int) -> SampleBatch:
    lengths = rng.integers(0, longest + 1, (len(batch), batch.fields)).astype(np.uint32)
    picks = (len(names) * rng.random(int(lengths.sum())) ** 3).astype(np.int64)
    return replace(batch, ids=names[picks], lengths=lengths)


@pytest.fixture
def make_cluster() -> type[Cluster]:
    return Cluster


@pytest.fixture
def make_job() -> Callable[..., JobSpec]:
    return _job


@pytest.fixture
def make_batches() -> Callable[..., list[SampleBatch]]:
    return _batches
