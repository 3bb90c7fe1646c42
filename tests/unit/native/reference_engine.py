"""The dispatch engine in plain Python: the specification that the native engine must equal, bit for bit.

States of a row, the operations of an iteration and their order: docs/semantics.md. Cache policies: ESD paper,
section 8.1. Row sizes: ESD paper, section 8.2. With several tables the top 8 bits of an id are the number of its table.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

import numpy as np

from esd.services.domain.ids import mix64
from tests.unit.native.reference_cache import Cache, Copy

NEVER = 2**32 - 1  # no iteration
PROFILE = 100  # iterations after which policy "static" chooses its hot rows
PERIOD = 32  # iterations from one choice of replicated rows to the next


@dataclass
class Row:
    """The state of one embedding row."""

    kind: str = "clean"  # clean | owned | split | settled (a split row after a flush)
    workers: set[int] = field(default_factory=set)  # holders | owner | who has not pushed | whose copies are outdated
    contributors: set[int] = field(default_factory=set)  # who trained it last
    version: int = 0
    last_use: int | None = None
    life: int = 0

    @property
    def full_version(self) -> int:
        return (self.life << 30) + self.version

    def has_latest(self, worker: int) -> bool:
        return self.kind in ("clean", "owned") and worker in self.workers


class ReferenceEngine:
    """Same calls as `esd.native.engine.Engine`, on lists of lists; plans hold lists of tuples."""

    def __init__(
        self,
        cache_sizes: Iterable[int],
        policy: str,
        table_sizes: Sequence[int] = (),
        max_rows: int = 0,
        gradient_shares: Sequence[float] = (),
        value_shares: Sequence[float] = (),
        *,
        row_ttls: Sequence[int] = (),
        push_trained: bool = False,
        uncached: bool = False,
        flush_ahead: bool = False,
        replicated_room: int = 0,
        replicated_by: int = 0,
        seed: int = 0,
        direct: bool = False,
    ) -> None:
        self.max_rows = max_rows
        self.row_ttls = row_ttls
        self.direct = direct
        self.push_trained = push_trained or uncached
        self.uncached = uncached
        self.flush_ahead = flush_ahead
        self.reads: dict[int, set[int]] = defaultdict(set)  # by id, the later iterations that are known to read it
        self.unpushed: list[dict[int, list[int]]] = [defaultdict(list) for _ in cache_sizes]  # by next read, in order
        self.trained: list[int] = []  # by the last iteration
        self.owed: list[dict] = [{"rows": [], "gradients": []} for _ in cache_sizes]  # what the next plan pushes
        self.life = 0  # of rows that are born now
        self.caches = [Cache(capacity, policy) for capacity in cache_sizes]
        self.table_sizes = table_sizes
        self.gradient_shares = gradient_shares or [1.0] * max(1, len(table_sizes))
        self.value_shares = value_shares or [1.0] * max(1, len(table_sizes))
        self.n = len(self.caches)
        self.rows: dict[int, Row] = {}
        self.hot: set[int] = set()
        self.iteration = 0
        self.lookups = self.hits = 0
        self.batch: list[list[int]] = []
        self.replicated_room = replicated_room
        self.replicated_by = [j for j in range(self.n) if not replicated_by or replicated_by >> j & 1]
        self.phase = int(mix64(np.array([seed], np.uint64))[0]) % PERIOD
        self.heat: Counter[int] = Counter()  # by id, reads of late
        self.wanted: set[int] = set()
        self.replicated: set[int] = set()
        self.flushed = 0  # iteration of the last flush

    def home(self, x: int) -> int:
        """The worker that pushes a replicated row."""
        hashed = int(mix64(np.array([x], np.uint64))[0])
        return self.replicated_by[(hashed >> 32) % len(self.replicated_by)]

    def gradient_share(self, x: int) -> float:
        """How large a partial gradient of a row of the batch is by the row."""
        return self.gradient_shares[self.table(x)]

    def value_share(self, x: int) -> float:
        """How large the values of a row of the batch are without its optimizer state, by the row."""
        return self.value_shares[self.table(x)]

    def ttl(self, x: int) -> int:
        return self.row_ttls[self.table(x)] if self.row_ttls else 0

    def table(self, x: int) -> int:
        return x >> 56 if self.table_sizes else 0

    def size(self, x: int) -> int:
        return self.table_sizes[self.table(x)] if self.table_sizes else 1

    def prepare(self, ids: list[list[int]], lengths: list[list[int]] | None = None) -> None:
        """Takes the ids of each sample, and how many it has of each field, one by default."""
        self.batch = ids
        self.lengths = [[1] * len(sample) for sample in ids] if lengths is None else lengths
        for sample in ids:
            for x in sample:
                self.rows.setdefault(x, Row())

    def costs(self, link_costs: list[int]) -> list[list[int]]:
        return [
            [sum(self.size(x) * self._cost(x, j, link_costs) for x in distinct) for j in range(self.n)]
            for distinct in map(set, self.batch)
        ]

    def _cost(self, x: int, j: int, link_costs: list[int]) -> int:
        row = self.rows[x]
        after = link_costs[j] if self.push_trained else 0
        if row.has_latest(j):
            return after
        return link_costs[j] + after + (link_costs[min(row.workers)] if row.kind == "owned" else 0)

    def affinity(self, fields: Sequence[int] | None = None, *, latest: bool = False) -> list[list[int]]:
        """Counts ids of some fields, of which an id that its sample repeats is in the first."""
        at_hand = Row.has_latest if latest else (lambda row, j: j in row.workers)
        chosen = []
        for sample, counts in zip(self.batch, self.lengths, strict=True):
            field_of: dict[int, int] = {}
            for x, f in zip(sample, [f for f, count in enumerate(counts) for _ in range(count)], strict=True):
                field_of.setdefault(x, f)
            chosen.append([x for x, f in field_of.items() if fields is None or f in fields])
        return [[sum(at_hand(self.rows[x], j) for x in sample) for j in range(self.n)] for sample in chosen]

    def room_needed(self) -> list[list[int]]:
        return [
            [sum(self.size(x) for x in distinct if x not in cache.copies) for cache in self.caches]
            for distinct in map(set, self.batch)
        ]

    def next_read(self, x: int, now: int) -> int:
        return min((t for t in self.reads[x] if t > now), default=NEVER)

    def look_ahead(self, ids: list[int], iteration: int) -> None:
        for x in ids:
            first = self.next_read(x, self.iteration) == NEVER
            self.reads[x].add(iteration)
            row = self.rows.get(x)
            if first and row and row.kind in ("owned", "split") and row.last_use != self.iteration - 1:
                for j in row.workers:
                    self.unpushed[j][iteration].append(x)

    def _push_ahead(self, limits: list[int], batch: set[int], plans: list[dict], early: set[int]) -> None:
        """Rows that wait leave, those that are read first before all others."""
        now = self.iteration
        for j, limit in enumerate(limits):
            left, queue = limit, self.unpushed[j]
            queue.pop(now, None)
            for priority in sorted(queue):
                while queue[priority] and left > 0:
                    x = queue[priority].pop(0)
                    row = self.rows[x]
                    waits = row.kind in ("owned", "split") and j in row.workers and x not in batch and x in early
                    if not waits or self.next_read(x, now) != priority:
                        continue
                    left -= 1
                    if row.kind == "owned":
                        plans[j]["update_rows"].append(self._row(x, j, early))
                        row.kind = "clean"
                        continue
                    plans[j]["update_gradients"].append(self._gradient(x, j, early))
                    self.caches[j].outdate(x, now, by_flush=True)
                    row.workers.discard(j)
                    if not row.workers:
                        row.workers = {each for each in row.contributors if x in self.caches[each].copies}
                        row.kind = "settled" if row.workers else "clean"

    def _await_push(self, batch: set[int]) -> None:
        """Rows that the last iteration but one has trained, and the last one has not, wait from now on."""
        last = self.iteration - 1
        for x in self.trained:
            row = self.rows[x]
            if row.kind in ("owned", "split") and row.last_use != last:
                priority = self.next_read(x, last)
                for j in row.workers:
                    if priority != NEVER or x not in self.unpushed[j][priority]:  # without a reader it waits once
                        self.unpushed[j][priority].append(x)
        self.trained = sorted(batch)
        for x in batch:
            self.reads[x].discard(last)

    def commit(self, assignment: list[int], flush_limits: list[int] | None = None) -> list[dict]:
        now = self.iteration
        used: list[set[int]] = [set() for _ in self.caches]
        for sample, j in zip(self.batch, assignment, strict=True):
            used[j].update(sample)
        together = (self.replicated | self.wanted) & set().union(*used)
        needs = [sorted(need | together if j in self.replicated_by else need) for j, need in enumerate(used)]
        pinned = sum(self.size(x) for x in self.replicated - together)
        for worker, cache in enumerate(self.caches):
            needed = pinned + sum(self.size(x) for x in needs[worker])
            if needed > cache.capacity:
                raise ValueError(f"the cache of worker {worker} is {cache.capacity}, it needs {needed}")
        trainers: dict[int, set[int]] = {}
        for j, need in enumerate(needs):
            for x in need:
                trainers.setdefault(x, set()).add(j)
        early = {x for x, row in self.rows.items() if now == 0 or row.last_use != now - 1}
        forgotten, discards, late_slots = self._forget(set(trainers), early)
        self.replicated |= together

        plans = [
            {"iteration": now, "forgotten": forgotten, "forgotten_below": self.life << 30, "discards": discards[j]}
            | {**{kind: [] for kind in ("update_rows", "update_gradients", "evict_rows")}}
            | {kind: [] for kind in ("evict_gradients", "drops", "pulls")}
            | {"direct_pushes": {}, "direct_pulls": {}}  # by id, the other worker
            for j in range(self.n)
        ]
        self._push(trainers, plans, early, flush_limits or [])
        late_slots = [self._make_room(j, needs[j], plans[j], early, late_slots[j]) for j in range(self.n)]
        self.lookups = sum(map(len, used))
        self.hits = 0
        for j, plan in enumerate(plans):
            self._pull(j, needs[j], plan, early, late_slots[j], used[j])
            self._describe(j, needs[j], plan, assignment, trainers)
        self._train(trainers)
        return plans

    def _push(self, trainers: dict[int, set[int]], plans: list[dict], early: set[int], limits: list[int]) -> None:
        """The pushes of the last iteration, the pushes ahead, and the pushes for the batch, by id."""
        for plan, owed in zip(plans, self.owed, strict=True):
            plan["update_rows"] += [each for each in owed["rows"] if each[1] not in plan["forgotten"]]
            plan["update_gradients"] += [each for each in owed["gradients"] if each[1] not in plan["forgotten"]]
        self.owed = [{"rows": [], "gradients": []} for _ in self.caches]
        self._push_ahead(limits, set(trainers), plans, early)
        for x in sorted(trainers):
            self._push_updates(x, trainers[x], plans, early)
        for plan in plans:
            for kind in ("update_rows", "update_gradients"):
                plan[kind].sort(key=lambda row: row[1])

    def _train(self, trainers: dict[int, set[int]]) -> None:
        for x, workers in trainers.items():
            row = self.rows[x]
            row.kind = "clean" if x in self.replicated else "owned" if len(workers) == 1 else "split"
            row.workers = set(workers)
            row.contributors = set(workers)
            row.version += 1
            row.last_use = self.iteration
        self.iteration += 1
        if self.push_trained:
            self.owed = self._push_all()
        if self.uncached:
            self._hold_nothing(trainers)
        if self.flush_ahead:
            self._await_push(set(trainers))
        if self.replicated_room:
            self.heat.update(x for sample in self.batch for x in sample)
            if self.iteration % PERIOD == self.phase:
                self._choose_replicated()
        if self.iteration == PROFILE:
            self._choose_hot_rows()

    def _hold_nothing(self, trainers: dict[int, set[int]]) -> None:
        for x, workers in trainers.items():
            self.rows[x].kind, self.rows[x].workers = "clean", set()
            for j in workers:
                self.caches[j].outdate(x, self.iteration, by_flush=True)

    def _choose_replicated(self) -> None:
        """The rows that are read most, as many as fit; the others leave, and are owed by one worker each."""
        candidates = [x for x, reads in self.heat.items() if reads > len(self.replicated_by)]
        candidates.sort(key=lambda x: (-self.heat[x] * (5 if x in self.wanted else 4), x))
        room, self.wanted = self.replicated_room, set()
        for x in candidates:
            room -= self.size(x)
            if room < 0:
                break
            self.wanted.add(x)
        self.heat = Counter({x: reads - (reads + 3) // 4 for x, reads in self.heat.items()})
        early = {x for x, row in self.rows.items() if row.last_use != self.iteration - 1}
        for x in sorted(self.replicated - self.wanted):
            if self.unpushed_replica(x):
                self.owed[self.home(x)]["rows"].append(self._row(x, self.home(x), early))
            for j in self.rows[x].workers:
                self.caches[j].copies[x].pinned = False
                self.caches[j].use(x, self.iteration - 1, hot=x in self.hot, trainings=self.rows[x].version + 1, step=3)
        self.replicated &= self.wanted

    def unpushed_replica(self, x: int) -> bool:
        last_use = self.rows[x].last_use
        return x in self.replicated and last_use is not None and last_use >= self.flushed

    def _forget(self, batch: set[int], early: set[int]) -> tuple[list[int], list[list[tuple]], list[dict]]:
        """The rows that leave the table, and by worker the discarded copies and the slots in use until now - 1 ends."""
        discards: list[list[tuple]] = [[] for _ in range(self.n)]
        late_slots: list[dict[int, list[int]]] = [defaultdict(list) for _ in range(self.n)]
        idle = {x: row.last_use for x, row in self.rows.items() if row.version and x not in batch}
        expired = [x for x, last_use in idle.items() if self.ttl(x) and last_use <= self.iteration - self.ttl(x)]
        expired.sort(key=lambda x: (self.table(x), self.rows[x].last_use, x))
        left = idle.keys() - set(expired)
        excess = len(left | batch) - self.max_rows if self.max_rows else 0
        forgotten = expired + nsmallest(excess, left, key=lambda x: (self.rows[x].last_use, x))
        for x in forgotten:
            self.life = max(self.life, (self.rows[x].life | 1) + 1)
            for j, cache in enumerate(self.caches):
                if x in cache.copies:
                    discards[j].append(self._row(x, j, early))
                    (cache.vacant if x in early else late_slots[j])[self.table(x)].append(cache.copies.pop(x).slot)
        for x in forgotten:
            del self.rows[x]
            del self.heat[x]
        self.hot -= set(forgotten)
        self.wanted -= set(forgotten)
        self.replicated -= set(forgotten)
        for x in batch:
            if not self.rows[x].version:
                self.rows[x].life = self.life
        return forgotten, discards, late_slots

    def _choose_hot_rows(self) -> None:
        """The most popular rows, as many as fit the smallest cache."""
        room = min(cache.capacity for cache in self.caches)
        for x in sorted((x for x in self.rows if self.rows[x].version), key=lambda x: (-self.rows[x].version, x)):
            room -= self.size(x)
            if room < 0:
                break
            self.hot.add(x)

    def _push_updates(self, x: int, trainers: set[int], plans: list[dict], early: set[int]) -> None:
        """Operation 1: the parts of the row that another worker needs go to the parameter server."""
        row = self.rows[x]
        outdated = set() if row.kind == "settled" else row.workers - trainers
        if row.kind == "owned" and trainers - row.workers:
            (owner,) = row.workers
            plans[owner]["update_rows"].append(self._row(x, owner, early))
            row.kind = "clean"
            if self.direct and len(trainers) == 1:
                (reader,) = trainers
                plans[owner]["direct_pushes"][x] = reader
                plans[reader]["direct_pulls"][x] = owner
        elif row.kind == "split":
            for j in row.workers:
                plans[j]["update_gradients"].append(self._gradient(x, j, early))
            row.kind, row.workers = "clean", set()
        elif row.kind == "settled":
            row.kind, row.workers = "clean", set()
        for j in outdated:
            self.caches[j].outdate(x, self.iteration)

    def _make_room(
        self, j: int, needs: list[int], plan: dict, early: set[int], late_slots: dict[int, list[int]]
    ) -> set[tuple[int, int]]:
        """Operation 2: victims leave, missing rows get slots. Returns tables and slots in use until now - 1 ends."""
        cache = self.caches[j]
        for x in needs:
            if x in cache.copies:
                cache.copies[x].last_use = self.iteration
        missing = [x for x in needs if x not in cache.copies]
        room = cache.capacity - sum(copy.size for copy in cache.copies.values())
        early_slots = cache.vacant
        while room < sum(self.size(x) for x in missing):
            x = cache.victim(self.iteration)
            room += cache.copies[x].size
            (early_slots if x in early else late_slots)[self.table(x)].append(cache.copies[x].slot)
            row = self.rows[x]
            if row.kind == "owned" and j in row.workers:
                plan["evict_rows"].append(self._row(x, j, early))
            elif row.kind == "split" and j in row.workers:
                plan["evict_gradients"].append(self._gradient(x, j, early))
            else:
                plan["drops"].append(self._row(x, j, early))
            row.workers.discard(j)
            if not row.workers:
                row.kind = "clean"
            del cache.copies[x]
        for table in range(max(1, len(self.table_sizes))):
            in_turn = [x for x in missing if x in early and self.table(x) == table]
            in_turn += [x for x in missing if x not in early and self.table(x) == table]
            vacant = early_slots[table] + late_slots[table]
            fresh = max(0, len(in_turn) - len(vacant))
            slots = [*range(cache.slots[table], cache.slots[table] + fresh), *vacant]
            cache.slots[table] += fresh
            for x, slot in zip(in_turn, slots, strict=False):
                cache.copies[x] = Copy(slot, self.size(x), last_use=self.iteration)
            cache.vacant[table] = slots[len(in_turn) :]
        self._use(cache, needs)
        return {(table, slot) for table, slots in late_slots.items() for slot in slots}

    def _use(self, cache: Cache, needs: list[int]) -> None:
        for x in needs:
            cache.copies[x].pinned = x in self.replicated
            if x not in self.replicated:
                cache.use(x, self.iteration, hot=x in self.hot, trainings=self.rows[x].version + 1)

    def _pull(self, j: int, needs: list[int], plan: dict, early: set[int], late_slots: set, used: set[int]) -> None:
        """Operation 3: a needed row without the latest value here is pulled."""
        for x in needs:
            if self.rows[x].has_latest(j):
                self.hits += x in used
                continue
            slot = self.caches[j].copies[x].slot
            plan["pulls"].append(
                (x in early and (self.table(x), slot) not in late_slots, x, slot, self.rows[x].full_version)
            )

    def _describe(self, j: int, needs: list[int], plan: dict, assignment: list[int], trainers: dict) -> None:
        plan["positions"] = [i for i, worker in enumerate(assignment) if worker == j]
        plan["unique_ids"] = needs
        plan["unique_slots"] = [self.caches[j].copies[x].slot for x in needs]
        plan["unique_versions"] = [self.rows[x].full_version for x in needs]
        plan["unique_contributors"] = [mask({self.home(x)} if x in self.replicated else trainers[x]) for x in needs]
        plan["reduced"] = [place for place, x in enumerate(needs) if x in self.replicated]
        places = {x: place for place, x in enumerate(needs)}
        plan["inverse"] = [places[x] for i in plan["positions"] for x in self.batch[i]]

    def flush(self) -> list[dict]:
        plans = self.owed
        if not self.push_trained:
            for owed, plan in zip(self.owed, self._push_all(), strict=True):
                owed["gradients"] = plan["gradients"]
                owed["rows"] = sorted(owed["rows"] + plan["rows"], key=lambda row: row[1])
        self.flushed = self.iteration
        self.owed = [{"rows": [], "gradients": []} for _ in self.caches]
        self.unpushed, self.trained = [defaultdict(list) for _ in self.caches], []
        return [{"iteration": self.iteration, **plan} for plan in plans]

    def _push_all(self) -> list[dict]:
        """All copies and gradients that the parameter server lacks; all rows are clean, or settled, afterwards."""
        early = {x for x, row in self.rows.items() if self.iteration == 0 or row.last_use != self.iteration - 1}
        plans: list[dict] = [{"rows": [], "gradients": []} for _ in range(self.n)]
        for x in sorted(self.rows):
            row = self.rows[x]
            if self.unpushed_replica(x):
                plans[self.home(x)]["rows"].append(self._row(x, self.home(x), early))
            elif row.kind == "owned":
                (owner,) = row.workers
                plans[owner]["rows"].append(self._row(x, owner, early))
                row.kind = "clean"
            elif row.kind == "split":
                for j in row.workers:
                    plans[j]["gradients"].append(self._gradient(x, j, early))
                    self.caches[j].outdate(x, self.iteration, by_flush=True)
                row.kind = "settled"
        return plans

    def _row(self, x: int, j: int, early: set[int]) -> tuple:
        return (x in early, x, self.caches[j].copies[x].slot, self.rows[x].full_version)

    def _gradient(self, x: int, j: int, early: set[int]) -> tuple:
        row = self.rows[x]
        assert row.last_use is not None
        return (*self._row(x, j, early), mask(row.contributors), row.last_use + 1)


def mask(workers: Iterable[int]) -> int:
    return sum(1 << j for j in workers)
