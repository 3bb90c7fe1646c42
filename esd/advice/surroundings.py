"""The machine and the settings of a planned run, and the needs of its services and the limits it meets there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from esd.advice.limits import Machine, free_disk, free_memory, limits_met
from esd.advice.needs import MEMORY, Load, Needs, Services
from esd.advice.row_counts import count_rows
from esd.advice.sizing import Profile
from esd.advice.steps import StepListener, ignore
from esd.dispatcher.service.settings import DispatcherSettings
from esd.dispatcher.simulator.sizing.search import Trial
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.store_access import configured_room
from esd.run import valkey
from esd.run.local_settings import LocalSettings, check_local_store
from esd.run.options import RunOptions
from esd.services.domain.footprint import Footprint
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.settings import load


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine of a run before anything is measured, and the settings that the services will have on it.

    Attributes:
        services: how they will be started.
        machine: its free memory and disk.
        dispatcher: settings of the dispatcher.
        server: settings of the parameter servers.
    """

    services: Services
    machine: Machine
    dispatcher: DispatcherSettings
    server: ParameterServerSettings

    @classmethod
    def of(cls, chosen: RunOptions, services: Services) -> Surroundings:
        """Checks how the services will be started, and looks at the free memory and disk of this machine and of Redis.

        Raises:
            InvalidArgument: the store, a shadow or a directory is wrong.
            SettingsError: a variable of the services is wrong.
            Unavailable: Redis is out of reach.
        """
        check_local_store(services.store, services.checkpoint_dir)
        LocalSettings(
            chosen.workers,
            services.store,
            services.shards,
            services.checkpoint_dir,
            shadows=services.shadows,
        ).check()
        server = load(ParameterServerSettings, store=services.store)
        machine = Machine(
            free_memory(),
            free_disk(services.checkpoint_dir) if isinstance(services.checkpoint_dir, Path) else None,
            None if services.store in (MEMORY, valkey.STORE) else configured_room(server),
        )
        return cls(services, machine, load(DispatcherSettings), server)

    def needs_of(
        self,
        planned: RunOptions,
        profile: Profile,
        footprint: Footprint,
        trial: Trial,
        device: str,
        count: str | None,
        listener: StepListener = ignore,
    ) -> tuple[Needs, tuple[str, ...]]:
        """Counts the rows of a run; returns the needs of its services, and a sentence for each limit that it meets.

        Args:
            planned: the run with the recommended sizes.
            profile: of its samples.
            footprint: of a worker.
            trial: the simulation with these sizes.
            device: where workers train.
            count: samples whose rows are counted, as `count_rows` has it.
            listener: gets a line every few seconds.
        """
        job = profile.job(planned)
        interval = _checkpoint_iterations(job, trial.seconds, profile.sample_bytes)
        listener("count of rows")
        counts = count_rows(planned, job, job.checkpoints_kept * interval, count, listener)
        load = Load(trial.batch, trial.cache_rows, profile.sample_bytes, interval)
        needs = Needs(job, counts, footprint, load, self.services, self.dispatcher, device)
        return needs, limits_met(needs, self.machine, self.server)


def _checkpoint_iterations(job: JobSpec, sample_seconds: float, sample_bytes: float) -> float:
    """Returns the iterations between two checkpoints; 0 without any."""
    if not job.takes_checkpoints:
        return 0.0
    by_count = job.checkpoint_every or math.inf
    by_time = job.checkpoint_seconds / (sample_seconds * job.batch_size) if job.checkpoint_seconds else math.inf
    by_bytes = job.checkpoint_bytes / (sample_bytes * job.batch_size) if job.checkpoint_bytes else math.inf
    return max(1.0, min(by_count, by_time, by_bytes))
