"""The checkpoints that runs have left in a store: listed, verified and restored while nothing runs on the store."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from pydantic import SecretStr

from esd.dispatcher.service.state.manifest import Manifest
from esd.ps_server.service.offline import OfflineTable, offline_tables
from esd.ps_server.service.settings import ParameterServerSettings
from esd.run import valkey
from esd.run.services import held_address
from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from esd.services.domain.stream_parts import StreamPlace
from esd.services.runtime.process import STOP_WITH_STDIN
from esd.services.runtime.settings import load


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The tables that one job trains; the first one keeps the descriptions of checkpoints for all.

    Attributes:
        first: the first table of the job.
        stored: all tables of the store, by name.
    """

    first: OfflineTable
    stored: Mapping[str, OfflineTable]

    @property
    def manifests(self) -> list[Manifest]:
        """The checkpoints to which the job can return."""
        return [Manifest.decode(each.manifest) for each in self.first.checkpoints]

    def tables_of(self, manifest: Manifest) -> list[OfflineTable]:
        """Returns the tables of a checkpoint, the first one first. Raises FailedPrecondition when one is missing."""
        names = [table["name"] for table in manifest.job["tables"]]
        if missing := [name for name in names if name not in self.stored]:
            raise FailedPrecondition(
                f"checkpoint {manifest.iteration} of table {self.first.name} is of tables that the store has not: "
                f"{', '.join(missing)}"
            )
        return [self.stored[name] for name in names]

    def describe(self, manifest: Manifest) -> dict[str, Any]:
        """Returns the figures of a checkpoint as JSON values."""
        return {
            "table": self.first.name,
            "iteration": manifest.iteration,
            "time": datetime.fromtimestamp(manifest.time, UTC).isoformat(timespec="seconds"),
            "job": manifest.job,
            "samples": manifest.samples,
            **_sources(manifest.place),
            "rows": sum(table.rows(manifest.iteration) for table in self.tables_of(manifest)),
            "rows_changed": manifest.changed,
            "bytes": manifest.size,
            "cuts": list(manifest.cuts),
        }

    def damage(self, manifest: Manifest) -> list[str]:
        """Returns the defects of a checkpoint, a sentence for each."""
        damage = []
        for name in manifest.checksums or {}:
            data = self.first.part(manifest.iteration, name)
            if data is None:
                damage.append(f"part {name!r} is missing")
                continue
            try:
                manifest.check_part(name, data)
            except EsdError:
                damage.append(f"part {name!r} is damaged: its checksum differs")
        try:
            tables = self.tables_of(manifest)
        except FailedPrecondition as error:
            return [*damage, str(error)]
        several = len(tables) > 1
        return damage + [
            f"table {table.name}: {each}" if several else each
            for table in tables
            for each in table.damaged_rows(manifest.iteration)
        ]

    def restore(self, iteration: int) -> int:
        """Puts the tables back to a checkpoint, and drops later ones. Returns how many rows were put back.

        Raises:
            FailedPrecondition: a parameter server runs on the store, or the checkpoint is damaged.
        """
        with self.first.claimed():
            manifest = next(each for each in self.manifests if each.iteration == iteration)
            if damage := self.damage(manifest):
                raise FailedPrecondition(
                    f"checkpoint {iteration} of table {self.first.name} is damaged: {'; '.join(damage)}"
                )
            return sum(each.restore(iteration) for each in self.tables_of(manifest))  # the first one first


@contextmanager
def stored_jobs(
    store: str | None, checkpoint_dir: Path | str | None, table: str | None = None
) -> Iterator[list[StoredJob]]:
    """Opens a store, and yields the jobs that have checkpoints in it.

    Args:
        store: URL of a Redis; `valkey`: the data that a run's own Valkey has left in `checkpoint_dir`, which is served
            meanwhile; None: the setting ESD_PS_STORE.
        checkpoint_dir: directory or URL of a run with the memory store or a Valkey of its own; None: the setting
            ESD_PS_CHECKPOINT_DIR.
        table: the name of a job's first table; None: all jobs.

    Raises:
        NotFound: the store holds no checkpoints.
        Unavailable: the store is out of reach.
    """
    settings = load(ParameterServerSettings)
    if checkpoint_dir is not None:
        settings = settings.model_copy(update={"store": SecretStr("memory"), "checkpoint_dir": checkpoint_dir})
    if store is not None:
        settings = settings.model_copy(update={"store": SecretStr(store), "checkpoint_dir": checkpoint_dir})
    with ExitStack() as stack:
        if store == valkey.STORE:
            url = SecretStr(stack.enter_context(_served(settings.checkpoint_dir)))
            settings = settings.model_copy(update={"store": url, "checkpoint_dir": None})
        tables = stack.enter_context(offline_tables(settings))
        stored = {each.name: each for each in tables}
        found = [StoredJob(each, stored) for each in tables if table in (None, each.name) and _has_manifests(each)]
        if not found:
            raise NotFound("the store holds no checkpoints" + (f" of table {table}" if table else ""))
        yield found


@contextmanager
def _served(checkpoint_dir: Path | str | None) -> Iterator[str]:
    """Serves the data of an ended run meanwhile; yields the URL.

    Raises:
        InvalidArgument: no Valkey is installed, or no directory is given.
        FailedPrecondition: no run has kept a Valkey's data in this directory, or a server has the data now.
        Unavailable: the server has ended before it was ready.
    """
    if not isinstance(checkpoint_dir, Path):
        raise InvalidArgument("--store valkey needs the --checkpoint-dir of the run, in which the server's data is")
    valkey.valkey_server()
    directory = valkey.kept_below(checkpoint_dir)
    if not directory.is_dir():
        raise FailedPrecondition(f"{checkpoint_dir} holds no data of a Valkey; did the run have --store valkey?")
    with held_address() as address, tempfile.NamedTemporaryFile("rb") as log:
        command = [sys.executable, "-m", "esd.run.valkey_process", address, str(directory), STOP_WITH_STDIN]
        with subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as process:
            assert process.stdin is not None  # noqa: S101 - started with pipes
            assert process.stdout is not None  # noqa: S101
            try:
                if not any(json.loads(line)["event"] == "ready" for line in process.stdout):  # it may be loading first
                    raise Unavailable(f"the Valkey of {directory} did not start: {_last_line(log)}")
                yield valkey.url_at(address)
            finally:
                process.stdin.close()  # the server stops with its standard input
                process.wait()


def _last_line(log: IO[bytes]) -> str:
    lines = Path(log.name).read_text(errors="replace").splitlines()
    return lines[-1].removeprefix("error: ") if lines else "it wrote nothing"


def verify(jobs: list[StoredJob], iteration: int | None = None) -> list[dict[str, Any]]:
    """Reads checkpoints, and returns the defects of each as JSON values: `table`, `iteration` and `damage`.

    Args:
        jobs: as `stored_jobs` yields them.
        iteration: of the checkpoints to read; None: all.

    Raises:
        FailedPrecondition: a parameter server runs on the store.
        NotFound: no job has such a checkpoint.
    """
    results: list[dict[str, Any]] = []
    for each in jobs:
        with each.first.claimed():
            results += [
                {"table": each.first.name, "iteration": manifest.iteration, "damage": each.damage(manifest)}
                for manifest in each.manifests
                if iteration in (None, manifest.iteration)
            ]
    if not results:
        raise NotFound("the store holds no such checkpoint")
    return results


def job_with(jobs: list[StoredJob], iteration: int) -> StoredJob:
    """Returns the job that has a checkpoint at an iteration.

    Raises:
        NotFound: no job has one, or several jobs have.
    """
    chosen = [each for each in jobs if iteration in (manifest.iteration for manifest in each.manifests)]
    if len(chosen) != 1:
        names = ", ".join(each.first.name for each in chosen)
        raise NotFound(
            f"tables {names} have a checkpoint {iteration}: say which with --table"
            if chosen
            else f"there is no checkpoint {iteration}; esd checkpoint list names those that are there"
        )
    return chosen[0]


def _sources(place: StreamPlace | None) -> dict[str, Any]:
    """Returns where the stream goes on after a checkpoint, as JSON values: in its only source, or in each part's."""
    parts = () if place is None else place.parts
    described = [
        {"samples": part.samples, "source": None if part.source is None else str(part.source), "ended": part.ended}
        for part in parts
    ]
    return {"source": described[0]["source"]} if len(described) == 1 else {"source": None, "parts": described}


def _has_manifests(table: OfflineTable) -> bool:
    """Tells whether this is a job's first table: the others have checkpoints without a manifest."""
    return any(each.manifest for each in table.checkpoints)
