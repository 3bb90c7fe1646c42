"""What the job's stream would cost under other mechanisms: a yardstick for the cost of its plans."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dispatcher.core.planner import Planner
from dispatcher.service.state import job_metrics
from services.domain.batches import SampleBatch
from services.domain.errors import EsdError
from services.domain.jobs import JobSpec
from services.domain.reports import Registration
from services.domain.state import ShadowCost
from services.runtime.threads import named_threads

# Shadows run beside the planner and never hold it up: when they are this many batches behind, there is no processor for
# them.
_FARTHEST_BEHIND = 256

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Shadow:
    planner: Planner
    cost: ShadowCost


class Shadows:
    """Plans the stream of one job under other mechanisms, each with mirrored caches of its own, and adds up the cost.

    A shadow sees every batch or it ends: one that had skipped a batch would no longer know its caches. Links and
    workloads are those that the job started with.

    Args:
        mechanisms: the names of the mechanisms; the job's own is left out.
    """

    def __init__(self, mechanisms: Sequence[str]) -> None:
        self._mechanisms = mechanisms
        self._shadows: list[_Shadow] = []
        self._thread = named_threads("esd-shadow")
        self._next = 0
        self._behind = 0

    @property
    def costs(self) -> tuple[ShadowCost, ...]:
        """The cost of every mechanism so far; each may be some iterations behind the plans."""
        return tuple(shadow.cost for shadow in self._shadows)

    def start(self, job: JobSpec, workers: Sequence[Registration]) -> None:
        """Begins with empty caches at iteration 0, with one registration per slot."""
        for mechanism in self._mechanisms:
            if mechanism != job.mechanism:
                spec = replace(
                    job,
                    mechanism=mechanism,
                    workload_limits=None,
                    measured_links=False,
                    eviction_term=False,
                    solver="auto",
                )
                planner = Planner(spec, [w.bandwidth for w in workers], [w.cache_rows for w in workers])
                self._shadows.append(_Shadow(planner, ShadowCost(mechanism, 0, 0.0)))

    def follow(self, iteration: int, batch: SampleBatch) -> None:
        """Takes the batch of an iteration and returns at once. A batch that was seen before is ignored."""
        if not self._shadows or iteration < self._next:
            return
        if iteration > self._next:
            self._end(f"the stream went on at iteration {iteration}, after {self._next}")
        elif self._behind >= _FARTHEST_BEHIND:
            self._end(f"they are {self._behind} batches behind")
        else:
            self._next += 1
            self._behind += 1
            planning = asyncio.get_running_loop().run_in_executor(self._thread, self._plan, tuple(self._shadows), batch)
            planning.add_done_callback(self._planned)

    def close(self) -> None:
        """Takes no more batches. Those that were taken are still planned."""
        self._thread.shutdown(wait=False)

    def _plan(self, shadows: Sequence[_Shadow], batch: SampleBatch) -> list[tuple[_Shadow, float]]:
        """Runs in the shadows' thread."""
        return [(shadow, shadow.planner.plan(batch).cost_seconds) for shadow in shadows]

    def _planned(self, planning: asyncio.Future[list[tuple[_Shadow, float]]]) -> None:
        self._behind -= 1
        error = planning.exception()
        if error is not None:
            self._end(str(error) if isinstance(error, EsdError) else repr(error))
            return
        for shadow, seconds in planning.result():
            shadow.cost = replace(
                shadow.cost,
                iterations=shadow.cost.iterations + 1,
                cost_seconds=shadow.cost.cost_seconds + seconds,
            )
            job_metrics.shadowed(shadow.cost.mechanism, seconds)

    def _end(self, cause: str) -> None:
        if self._shadows:
            _log.warning("no shadow costs any more: %s", cause)
        self._shadows = []
