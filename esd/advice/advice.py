"""An advice: the recommended options, the reasons, and the command that trains so."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from esd.advice.needs import MEMORY, Needs
from esd.advice.teams import Teams
from esd.dispatcher.simulator.sizing.access import AccessTable
from esd.dispatcher.simulator.sizing.search import Trial
from esd.dispatcher.simulator.sizing.shapes import fit_shapes
from esd.run.options import RunOptions, option_name
from esd.services.domain.dense_sums import parse_dense_sum
from esd.services.domain.footprint import Footprint

SHARES = (0.5, 0.9, 0.99)  # of the lookups, whose rows are counted


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommended options of a run, and the reasons.

    Attributes:
        chosen: the options of the run, with the recommended ones.
        memory: bytes of a worker that were planned with.
        table: how often the samples have each row.
        room: of all rows, in rows of the first table, as caches are counted in.
        footprint: memory and time that training takes on this machine.
        trials: all simulations of the search.
        best: the recommended one.
        policies: seconds of a sample by cache policy, at the recommended sizes.
        predicted_seconds: of a sample by the equations, under random dispatch, at the recommended sizes.
        ways: seconds of a sample by way to synchronise, with the recommended policy.
        teams: some of the machines, and other ways to sum dense gradients.
        needs: rows of the tables, memory and disk of the services.
        limits: a sentence for each limit that the run will meet.
        device: where workers train.
    """

    chosen: RunOptions
    memory: float
    table: AccessTable
    room: int
    footprint: Footprint
    trials: tuple[Trial, ...]
    best: Trial
    policies: dict[str, float]
    predicted_seconds: float
    ways: dict[str, float]
    teams: Teams
    needs: Needs
    limits: tuple[str, ...]
    device: str = "cpu"

    @property
    def command(self) -> str:
        """The command that trains as recommended, on all machines."""
        return shlex.join(["esd", "train", *_arguments(self._options(self.chosen))])

    @property
    def fastest_command(self) -> str:
        """The command of the fastest team."""
        return shlex.join(["esd", "train", *_arguments(self.fastest_options)])

    @property
    def fastest_options(self) -> dict[str, object]:
        """The options of `esd train` for the fastest team, by their names without dashes."""
        return self._options(self.teams.best)

    def _options(self, chosen: RunOptions) -> dict[str, object]:
        services = self.needs.services
        given = {
            "store": None if services.store == MEMORY else services.store,
            "shards": None if services.shards == 1 else services.shards,
            "checkpoint-dir": None if services.checkpoint_dir is None else str(services.checkpoint_dir),
            "shadows": None if services.shadows is None else ",".join(services.shadows) or "none",
            "device": None if self.device == "cpu" else self.device,
        }
        return _of_run(chosen) | {option: value for option, value in given.items() if value is not None}

    @property
    def round_trips(self) -> int:
        """Round trips that an iteration takes at least."""
        return parse_dense_sum(self.chosen.dense_sum).iteration_round_trips(self.chosen.workers)

    def as_json(self) -> dict[str, Any]:
        """Returns everything as JSON values."""
        return {
            "memory": self.memory,
            "profile": {
                "samples": self.table.samples,
                "rows": len(self.table.counts),
                "lookups_per_sample": self.table.lookups_per_sample,
                "rows_for_share": {str(share): self.table.rows_for(share) for share in SHARES},
                "shapes": [asdict(shape) for shape in fit_shapes(self.table.counts)],
            },
            "footprint": asdict(self.footprint) | {"dense_bytes": self.footprint.dense_bytes},
            "trials": [asdict(trial) for trial in self.trials],
            "recommended": asdict(self.best) | {"policy": self.chosen.policy, "sync": self.chosen.sync},
            "policies": self.policies,
            "ways": self.ways,
            "predicted_seconds": self.predicted_seconds,
            "round_trips": self.round_trips,
            "rows": self.needs.counts.as_json(),
            "needs": [need.as_json() for need in self.needs.kinds],
            "local_memory": self.needs.local_memory,
            "limits": list(self.limits),
            "command": self.command,
            "fastest": self.teams.as_json() | {"command": self.fastest_command, "options": self.fastest_options},
        }


def _of_run(chosen: RunOptions) -> dict[str, object]:
    """Returns the options that differ from their defaults, and those that were planned."""
    options: dict[str, object] = {}
    for field in fields(RunOptions):
        value = getattr(chosen, field.name)
        if value == field.default and field.name not in ("data", "workers", "policy"):
            continue
        written = value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value
        options[option_name(field.name).removeprefix("--")] = written
    return options


def _arguments(options: Mapping[str, object]) -> list[str]:
    """Returns options as the command line has them."""
    arguments = []
    for name, value in options.items():
        arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return arguments
