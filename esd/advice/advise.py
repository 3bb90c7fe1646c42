"""How a run trains fastest: samples, cached rows and replicated ones, by equations and by simulation."""

from __future__ import annotations

import re
from dataclasses import replace

from esd.advice.advice import Advice
from esd.advice.limits import free_memory
from esd.advice.messages import measure_messages
from esd.advice.needs import LOCAL, Services
from esd.advice.row_counts import check_count
from esd.advice.sizing import Profile, measure, predicted, simulated, size_search
from esd.advice.steps import StepListener, ignore
from esd.advice.surroundings import Surroundings
from esd.advice.teams import compare_teams
from esd.advice.ways import ways_to_synchronise
from esd.run.devices import worker_devices
from esd.run.options import BALANCED, RunOptions
from esd.services.domain.auto_sum import sum_for_links
from esd.services.domain.dense_sums import AUTO, parse_dense_sum
from esd.services.domain.errors import InvalidArgument, ResourceExhausted
from esd.services.domain.sync import Proactive
from esd.services.domain.units import parse_size
from esd.worker.service.settings import DEVICE

POLICIES = ("emark", "reuse", "lru", "lfu", "static")
_LEAST_ITERATIONS = 12  # of a simulation, a third of them to fill the caches
_BETTER = 0.99  # of the seconds of the policy, or way to synchronise, that is asked for, another one must be


def advise(
    chosen: RunOptions,
    *,
    memory: str | None = None,
    samples: int = 100_000,
    batch_limits: str = "16,512",
    device: str = "cpu",
    threads: int = 1,
    count: str | None = None,
    round_trip: float = 0.0,
    services: Services = LOCAL,
    listener: StepListener = ignore,
) -> Advice:
    """Measures this machine, and finds by equations and simulations the fastest options on it. Takes minutes.

    Args:
        chosen: the run, without the sizes that are found: cached rows, and the batch if it may be chosen.
        memory: of each worker, `2g` or `512m`; None: half of the free memory of this machine.
        samples: the first samples of the data, which are profiled.
        batch_limits: where no batch is given, the least and the most samples per worker and iteration.
        device: where workers train: `cpu`, `auto`, `cuda` or `cuda:N`.
        threads: of a worker's CPU kernels.
        count: samples whose rows are counted, or `all`; None: as `count_rows` has it.
        round_trip: milliseconds from a worker to the services and back.
        services: how the services will be started.
        listener: gets a line before each step.

    Raises:
        InvalidArgument: an option is wrong, or is one that an advice finds.
        ResourceExhausted: the memory does not hold a worker, or a cache for the rows of one iteration.
        SettingsError: a variable of the services is wrong.
        Unavailable: the Redis that will keep the rows is out of reach.
    """
    _check(chosen, device)
    here = worker_devices(device, 1)[0]
    chosen = _with_sum(chosen, services.shards)
    check_count(count)
    surroundings = Surroundings.of(chosen, services)
    available = free_memory() / 2 if memory is None else parse_size(memory)
    listener(f"profile of {chosen.data}")
    profile = Profile.of(chosen, samples)
    batches = _batches(chosen, batch_limits, profile.table.samples)
    listener(f"memory and computation of {chosen.model}")
    footprint = measure(chosen, profile, here, threads)
    if footprint.fixed_bytes >= available:
        raise ResourceExhausted(
            f"a worker takes {footprint.fixed_bytes / 1e6:,.0f} MB beside its samples and rows, and is given "
            f"{available / 1e6:,.0f} MB: give it more (--memory)"
        )
    listener("messages of a worker, in a short run")
    short = replace(chosen, batch=chosen.batch or batches[0])
    messages = measure_messages(short, profile, footprint, available, here)
    footprint = replace(footprint, message_seconds=messages, round_trip_seconds=round_trip / 1000)
    search = size_search(chosen, profile, footprint, available, listener)
    best = search.run(batches)
    policies = {chosen.policy: best}
    for policy in POLICIES:
        if policy not in policies:
            policies[policy] = simulated(
                replace(chosen, policy=policy), profile, footprint, best.batch, best.cache_rows
            )
    fastest = min(policies, key=lambda policy: policies[policy].seconds)
    if policies[fastest].seconds >= _BETTER * best.seconds:
        fastest = chosen.policy
    planned = replace(chosen, batch=best.batch, cache_rows=best.cache_rows, policy=fastest)
    ways = ways_to_synchronise(planned, profile, footprint, policies[fastest], listener)
    others = {way: trial for way, trial in ways.items() if way != Proactive.name} or ways
    sync = min(others, key=lambda way: others[way].seconds)
    if chosen.sync in others and ways[sync].seconds >= _BETTER * policies[fastest].seconds:
        sync = chosen.sync
    planned = replace(planned, sync=sync)
    needs, limits = surroundings.needs_of(planned, profile, footprint, ways[sync], here, count, listener)
    teams = compare_teams(planned, profile, footprint, ways[sync], available, listener)
    return Advice(
        chosen=planned,
        memory=available,
        table=profile.table,
        room=profile.room(profile.job(chosen)),
        footprint=footprint,
        trials=tuple(trial for trial in search.trials.values() if trial is not None),
        best=best,
        policies={policy: trial.seconds for policy, trial in policies.items()},
        predicted_seconds=predicted(chosen, profile, footprint, best.batch, best.cache_rows),
        ways={way: trial.seconds for way, trial in ways.items()},
        teams=teams,
        needs=needs,
        limits=limits,
        device=device,
    )


def _with_sum(chosen: RunOptions, shards: int) -> RunOptions:
    """Returns the run with the way to sum dense gradients that its links decide, unless it names one."""
    if parse_dense_sum(chosen.dense_sum) != AUTO:
        return chosen
    second = [chosen.lan_bandwidth()] * chosen.workers
    return replace(chosen, dense_sum=str(sum_for_links(chosen.bandwidths(), second, shards)))


def _check(chosen: RunOptions, device: str) -> None:
    """Raises InvalidArgument for mistakes that show before anything is read or measured."""
    if chosen.cache_rows is not None or chosen.cache_ratio is not None:
        raise InvalidArgument("--cache-rows and --cache-ratio are what esd plan finds: leave them out")
    if chosen.workloads not in (None, "equal", BALANCED):
        raise InvalidArgument(f"esd plan finds the samples per worker: --workloads is equal or {BALANCED}, not a list")
    if chosen.sites is not None:
        raise InvalidArgument("esd plan does not advise on sites: leave out --sites, and see esd simulate --sites")
    if chosen.submitters > 1:
        raise InvalidArgument("esd plan looks at one stream: leave out --submitters")
    if chosen.hot_batches:
        raise InvalidArgument("esd plan finds batches of samples as they come: leave out --hot-batches")
    if not re.fullmatch(DEVICE, device):
        raise InvalidArgument(f"--device is {device!r}, it must be cpu, auto, cuda or cuda:N")
    chosen.bandwidths()  # looks at the links


def _batches(chosen: RunOptions, limits: str, samples: int) -> list[int]:
    """Returns the samples per worker to choose from: the one that is given, or powers of two within the limits."""
    if chosen.batch is not None:
        least = most = chosen.batch
    else:
        try:
            least, most = (int(part) for part in limits.split(","))
        except ValueError:
            raise InvalidArgument(f"--batch-limits {limits!r} is not two whole numbers: 16,512") from None
        if not 1 <= least <= most:
            raise InvalidArgument(f"--batch-limits {limits!r} must be at least 1, the least first")
    powers = [2**power for power in range(most.bit_length()) if least <= 2**power <= most]
    batches = [batch for batch in powers or [least] if samples >= _LEAST_ITERATIONS * batch * chosen.workers]
    if chosen.batch is not None and chosen.batch not in batches:
        batches = [chosen.batch] if samples >= _LEAST_ITERATIONS * chosen.batch * chosen.workers else []
    if not batches:
        raise InvalidArgument(
            f"{samples} profiled samples are fewer than {_LEAST_ITERATIONS} iterations of {least} samples at "
            f"{chosen.workers} workers: profile more (--samples), or choose smaller batches"
        )
    return batches
