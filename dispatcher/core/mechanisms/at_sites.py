"""Dispatch of samples that stay at their sites: the problem falls apart into one per site, each solved as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.learned import Arrays, Learner, of, within
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput, Mechanism
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec


class AtSites:
    """Lets a mechanism assign each site's samples of a batch to the workers of this site, one site after the other.

    Each site has a mechanism of its own, which learns from the samples of this site. The workers of
    other sites have room for none. The costs and scores of a sample depend on the row state and not on the rest
    of the batch, so that nothing is lost by the division; `joint` and `brute-force`, where it does, see whole batches.
    """

    def __init__(self, build: Callable[[JobSpec], Mechanism], job: JobSpec) -> None:
        self._of_site = [build(job) for _ in dict.fromkeys(job.sites)]
        self.lookahead = self._of_site[0].lookahead

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Assigns every sample to a worker of its site; a time limit is shared out by numbers of samples."""
        sites = problem.sites
        if sites is None:
            raise InvalidArgument("the batch has no sites, and its samples stay at theirs")
        workers = np.empty(len(problem.batch), np.int32)
        parts, left = [], len(problem.batch)
        for site, mechanism in enumerate(self._of_site):
            rows = np.flatnonzero(sites.of_samples == site)
            if not len(rows):
                continue
            own = replace(
                problem,
                batch=problem.batch[rows],
                capacities=np.where(sites.of_workers == site, problem.capacities, 0).astype(np.int32),
                lookahead=tuple(
                    later[np.flatnonzero(of_later == site)]
                    for later, of_later in zip(problem.lookahead, sites.of_lookahead, strict=True)
                ),
                time=problem.time.part(len(rows) / left),
                sites=None,
            )
            problem.engine.prepare(*own.batch.id_columns)
            parts.append(mechanism.decide(own))
            workers[rows] = parts[-1].workers
            left -= len(rows)
        problem.engine.prepare(*problem.batch.id_columns)
        gaps = [part.gap for part in parts]
        return Assignment(
            workers,
            sum(part.expected_cost for part in parts),
            sum(part.score_seconds for part in parts),
            parts[0].solver,
            None if None in gaps else sum(gap for gap in gaps if gap is not None),
        )

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the state of the mechanism of each site, for `load`."""
        return within({str(at): each.save() for at, each in enumerate(self._of_site) if isinstance(each, Learner)})

    def load(self, saved: Arrays) -> None:
        """Restores the result of `save`."""
        for at, each in enumerate(self._of_site):
            if isinstance(each, Learner) and (arrays := of(saved, str(at))):
                each.load(arrays)
