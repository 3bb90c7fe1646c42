"""Bad days over the ways to synchronise: each way meets each misfortune, in trainings of every shape."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from esd.run.options import RunOptions
from esd.services.domain.tables import OptimizerKind
from hardening.chaos import strikes
from hardening.chaos.bad_days import OPTIONS, BadDay
from hardening.chaos.misfortunes import Misfortune
from hardening.chaos.strikes import Strike
from hardening.chaos.system import Training

WAYS = ("on-demand", "direct", "full", "write-through", "none", "proactive", "replicated:100", "bounded:2,2")
DENSE_SUMS = ("all-reduce", "server", "low-rank:4")
_SGD = replace(OPTIONS, optimizer=OptimizerKind.SGD, learning_rate=0.02, checkpoint_every=8)
_SAMPLES = 3600  # of the files and of each epoch
_HANG_SECONDS = 8.0  # longer than a lease

_SCHEMA = """label = "clicked"
ids = [{ column = "user", table = "users" }, { column = "item", table = "items" }, "category"]
log = ["price"]
dense = ["price"]
[tables.users]
dim = 12
[tables.items]
dim = 4
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of misfortune.

    Attributes:
        name: the name of the kind.
        strike: makes the strike that happens to a run with this store, at a worker's slot.
        store: the only store on which it can happen; None: on any.
    """

    name: str
    strike: Callable[[str, int], Strike]
    store: str | None = None


def _killing(target: str, name: str | None = None) -> Kind:
    return Kind(f"kill {name or target}", lambda _store, slot: strikes.kill(target, slot))


def _hanging(target: str) -> Kind:
    return Kind(f"hang {target}, {_HANG_SECONDS:g} s", lambda _store, slot: strikes.hang(target, slot, _HANG_SECONDS))


def _killing_in_a_pause(target: str) -> Kind:
    return Kind(
        f"kill {target} in a pause",
        lambda _store, slot: strikes.in_a_pause(strikes.kill(target, slot), before=3.0, after=4.0),
    )


def _hang_in_a_pause(_store: str, slot: int) -> Strike:
    return strikes.in_a_pause(strikes.hang("worker", slot, _HANG_SECONDS), before=2.0, after=_HANG_SECONDS + 2.0)


def _fill(store: str, slot: int) -> Strike:
    if store == "redis":
        return strikes.fill_redis(_HANG_SECONDS)
    return strikes.fill_disk(_HANG_SECONDS) if strikes.can_mount() else strikes.hang("ps_server", slot, _HANG_SECONDS)


KINDS = (
    _killing("worker"),
    _killing("worker host"),
    _killing("dispatcher"),
    _killing("ps_server"),
    Kind("kill redis", lambda _store, _slot: strikes.kill_redis(2.0), store="redis"),
    _killing("everything", "the command"),
    _hanging("worker"),
    _hanging("dispatcher"),
    _hanging("ps_server"),
    _hanging("everything"),
    _killing_in_a_pause("worker"),
    _killing_in_a_pause("dispatcher"),
    _killing_in_a_pause("ps_server"),
    Kind("hang worker in a pause", _hang_in_a_pause),
    Kind("cut all links, 6 s", lambda _store, slot: strikes.cut("all", slot, 6.0, silent=False)),
    Kind("full store", _fill),
    Kind("second start", lambda _store, _slot: strikes.start_again()),
)


def draw_ways(rng: random.Random, runs: int, folder: Path) -> list[BadDay]:
    """Draws this number of days, in which each way meets each kind of misfortune.

    The days take the ways, and each way's days take the shapes and the sums of dense gradients in turn. Each day meets
    one misfortune at least.

    Args:
        rng: the source of the moments, of the slots, and of the order of the misfortunes of each way.
        runs: the number of days, one per way at least.
        folder: an existing folder for the data.
    """
    shapes = _shapes(folder)
    days: list[BadDay] = []
    hands = [_hands(rng, len(range(way, runs, len(WAYS)))) for way in range(len(WAYS))]
    for number in range(runs):
        turn, way = divmod(number, len(WAYS))
        kinds = hands[way][turn]
        store = next((kind.store for kind in kinds if kind.store), ("redis", "directory")[(turn + way) % 2])
        training = _in_way(shapes[(turn + way) % len(shapes)], WAYS[way], DENSE_SUMS[turn % len(DENSE_SUMS)])
        misfortunes = [_misfortune(rng, kind, store) for kind in kinds]
        days.append(BadDay(training, store, sorted(misfortunes, key=lambda each: each.iteration)))
    return days


def _hands(rng: random.Random, days: int) -> list[list[Kind]]:
    """Deals all kinds to the days of one way, again and again until each day has one."""
    hands: list[list[Kind]] = [[] for _ in range(days)]
    for at in range(max(days, len(KINDS))):
        if at % len(KINDS) == 0:
            shuffled = rng.sample(KINDS, len(KINDS))
        hands[at % days].append(shuffled[at % len(KINDS)])
    return hands


def _misfortune(rng: random.Random, kind: Kind, store: str) -> Misfortune:
    iteration = rng.randrange(1, _iterations(_SAMPLES) * 4 // 5)  # the rest of the stream must not be sent before
    return Misfortune(kind.name, kind.strike(store, rng.randrange(OPTIONS.workers)), iteration, rng.uniform(0, 0.5))


def _iterations(samples: int) -> int:
    return samples // sum(OPTIONS.worker_samples())


def _in_way(shape: Training, way: str, dense_sum: str) -> Training:
    sync, direct = ("on-demand", True) if way == "direct" else (way, False)

    def changed(options: RunOptions) -> RunOptions:
        return replace(options, sync=sync, direct=direct, dense_sum=dense_sum)

    earlier = None if shape.earlier is None else changed(shape.earlier)
    return replace(shape, options=changed(shape.options), earlier=earlier)


def _shapes(folder: Path) -> Sequence[Training]:
    """Writes the data files. Returns a training of one table, one of each other kind, and one of all kinds together."""
    (folder / "clicks.toml").write_text(_SCHEMA)
    for seed, name in enumerate(("clicks", "later")):
        _write_clicks(folder / f"{name}.csv", seed)
    plain = replace(_SGD, data=f"{_SGD.data}&samples={_SAMPLES}", iterations=None)
    half = _iterations(_SAMPLES) // 2
    clicks = replace(plain, data=str(folder / "clicks.csv"), schema=folder / "clicks.toml", model="dcn")
    judged = replace(clicks, evaluate=str(folder / "later.csv"), evaluate_every=16)
    return (
        Training(plain),
        Training(clicks, shards=2),
        Training(replace(plain, data=f"{_SGD.data}&samples={_SAMPLES // 3}", epochs=3, shuffle=256)),
        Training(replace(plain, holdout="0.1", evaluate_every=16)),
        Training(plain, earlier=replace(plain, iterations=half)),
        Training(
            replace(judged, epochs=2, shuffle=256, iterations=_iterations(_SAMPLES)),
            shards=2,
            earlier=replace(judged, iterations=half),
        ),
    )


def _write_clicks(path: Path, seed: int) -> None:
    """Writes samples of three tables."""
    rng = np.random.default_rng(seed)
    columns = (
        rng.zipf(1.3, _SAMPLES) % 900,
        rng.zipf(1.2, _SAMPLES) % 2500,
        rng.integers(0, 20, _SAMPLES),
        rng.integers(1, 100, _SAMPLES),
        rng.integers(0, 2, _SAMPLES),
    )
    lines = ["user,item,category,price,clicked"]
    lines += [",".join(map(str, values)) for values in zip(*columns, strict=True)]
    path.write_text("\n".join(lines) + "\n")
