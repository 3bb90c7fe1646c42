"""The settings of a local run's services: the ESD_* variables and the file of ESD_CONFIG, as services take them.

A setting that an option of the run decides, or that several services of one machine cannot share, is refused by name
unless it says the same, so that no setting is without effect and without a word.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esd.dispatcher.service.settings import DispatcherSettings, check_mechanisms
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.stores.by_url import check_store
from esd.run import valkey
from esd.run.devices import worker_devices
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.documents import suggestion
from esd.services.runtime.environment import OWN_NAMES
from esd.services.runtime.settings import (
    CONFIG_VARIABLE,
    ClientSettings,
    ServerSettings,
    Settings,
    SettingsError,
    given_settings,
    load,
)
from esd.worker.service.settings import WorkerSettings

PREFIX = "ESD_"
REJOIN_SECONDS = 60.0  # a dead worker is started again here, and worth waiting for

# Settings that a local run takes from no variable and no file, and the reason or the option that decides instead.
_ADDRESS = "the services of a local run draw free ports of this machine"
_SECRETS = "the services of a local run reach each other on this machine alone, without certificates and tokens"
_OF_ALL = {"listen": _ADDRESS} | dict.fromkeys(
    ("tls_ca", "tls_certificate", "tls_key", "tls_clients", "token_file"), _SECRETS
)
NOT_TAKEN: Mapping[type[ServerSettings], Mapping[str, str]] = {
    ParameterServerSettings: _OF_ALL
    | {
        "store": "--store decides it in a local run",
        "checkpoint_dir": "--checkpoint-dir decides it in a local run",
        "shard": "a local run numbers its parameter servers itself",
        "shards": "--shards decides it in a local run",
    },
    DispatcherSettings: _OF_ALL | {"decision_log": "--decision-log decides it in a local run"},
    WorkerSettings: _OF_ALL
    | {
        "name": "a local run names its workers itself",
        "dispatcher": "the workers of a local run belong to its own dispatcher",
        "link": "--links decides it in a local run",
        "lan": "--lan decides it in a local run",
        "site": "--sites decides it in a local run",
        "site_values": "--site-values decides it in a local run",
        "cache_rows": "--cache-rows or --cache-ratio decides it in a local run",
        "code": "a local run finds models of one's own in its working directory and by PYTHONPATH",
        "advertise_host": _ADDRESS,
        "tls_peer_name": _SECRETS,
    },
}


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The settings of all services of a local cluster.

    Attributes:
        workers: their number.
        store: `memory`, the URL of a Redis, or `valkey` until its server has an address.
        shards: number of parameter servers.
        checkpoint_dir: directory or URL where parameter servers with the memory store keep checkpoints, or the
            directory of the Valkey's data.
        decision_log: file of the dispatcher's decision log.
        shadows: mechanisms whose cost is computed for comparison; None: ESD_DISPATCHER_SHADOW_MECHANISMS.
        device: of the workers, as `worker_devices` reads it; None: ESD_WORKER_DEVICE, or `cpu`.
        rejoin_seconds: how long the others wait for a worker that has died; None: ESD_DISPATCHER_REJOIN_SECONDS, or 60.
    """

    workers: int
    store: str = "memory"
    shards: int = 1
    checkpoint_dir: Path | str | None = None
    decision_log: Path | None = None
    shadows: Sequence[str] | None = None
    device: str | None = None
    rejoin_seconds: float | None = None

    def check(self) -> None:
        """Reads the settings of all services as they will read them.

        Raises:
            SettingsError: a setting is wrong, unknown, or one that a local run does not take; all are listed.
            InvalidArgument: a shadow is no mechanism, or a device is not here.
        """
        if self.shadows is not None:
            try:
                check_mechanisms(self.shadows)
            except ValueError as error:
                raise InvalidArgument(f"--shadows: {error}") from None
        not_taken = [
            *_not_taken(ParameterServerSettings, self._server()),
            *_not_taken(DispatcherSettings, self._log()),
            *_not_taken(WorkerSettings, {}),
        ]
        if not_taken:
            raise SettingsError(
                "a local run cannot take these settings of services:"
                + "".join(f"\n  {line}" for line in not_taken)
                + "\nunset them, or start the services by `esd serve` and train with --dispatcher"
            )
        device = next(iter(self.devices()), "cpu")
        place = {"name": "worker-0", "dispatcher": "127.0.0.1:1", "link": 1e9, "cache_rows": 1, "device": device}
        mistakes = [
            *_mistakes(ParameterServerSettings, self._server(), self.shards),
            *_mistakes(DispatcherSettings, self._of_dispatcher(), 1),
            *_mistakes(WorkerSettings, place, self.workers),
        ]
        if mistakes:
            raise SettingsError("\n".join(mistakes))

    def devices(self) -> tuple[str, ...]:
        """Returns the device of every worker. Raises InvalidArgument if one is not here."""
        if self.device is not None:
            return worker_devices(self.device, self.workers)
        place, given = given_settings(WorkerSettings).get("device", ("ESD_WORKER_DEVICE", "cpu"))
        return worker_devices(str(given), self.workers, place)

    def server(self, shard: int) -> dict[str, str]:
        """Returns the variables of a parameter server."""
        return _variables(ParameterServerSettings, self._server() | {"shard": shard})

    def dispatcher(self) -> dict[str, str]:
        """Returns the variables of the dispatcher."""
        return _variables(DispatcherSettings, self._of_dispatcher())

    def worker(self, **place: object) -> dict[str, str]:
        """Returns the variables of a worker; `place` gives its name, dispatcher, link, rows of the cache and device."""
        return _variables(WorkerSettings, place)

    def _server(self) -> dict[str, Any]:
        kept = {} if self.checkpoint_dir is None else {"checkpoint_dir": self.checkpoint_dir}
        return {"store": self.store, "shards": self.shards} | kept

    def _log(self) -> dict[str, Any]:
        return {} if self.decision_log is None else {"decision_log": self.decision_log}

    def _of_dispatcher(self) -> dict[str, Any]:
        given = given_settings(DispatcherSettings)
        decided: dict[str, Any] = self._log()
        if self.shadows is not None:
            decided["shadow_mechanisms"] = ",".join(self.shadows) or "none"
        if self.rejoin_seconds is not None:
            decided["rejoin_seconds"] = self.rejoin_seconds
        defaults = {"page_port": 0, "rejoin_seconds": REJOIN_SECONDS}
        return {field: value for field, value in defaults.items() if field not in given} | decided


def check_local_store(store: str, checkpoint_dir: Path | str | None) -> None:
    """Checks the store of a local run, which may be a Valkey of its own, without opening a file or a connection.

    Raises:
        InvalidArgument: the store is none, no Valkey is installed, or a checkpoint directory is given for a Redis.
        FailedPrecondition: the library for object stores is not installed.
    """
    if store == valkey.STORE:
        if isinstance(checkpoint_dir, str):
            raise InvalidArgument(
                f"--store {valkey.STORE} keeps its data in a directory of this machine; {checkpoint_dir} is for "
                "--store memory"
            )
        valkey.valkey_server()
    else:
        check_store(store, checkpoint_dir)


def unknown_variables() -> list[str]:
    """Returns a line for each ESD_* variable of the environment that nothing reads, with the nearest known name.

    A variable that begins as the variables of a service do is the service's to refuse.
    """
    classes: tuple[type[Settings], ...] = (*NOT_TAKEN, ClientSettings)
    known = [each.variable(field) for each in classes for field in each.model_fields]
    known += OWN_NAMES
    prefixes = tuple(each.variable("") for each in NOT_TAKEN)
    return [
        f"{name}: nothing reads this variable{suggestion(name.upper(), known)}"
        for name in sorted(os.environ)
        if name.upper().startswith(PREFIX) and not name.upper().startswith(prefixes) and name.upper() not in known
    ]


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the variables of services."""
    return {name: value for name, value in environment.items() if not name.upper().startswith(PREFIX)}


def _not_taken(settings: type[ServerSettings], decided: Mapping[str, object]) -> Iterator[str]:
    """Yields a line for each setting of variables and file that the run decides otherwise."""
    for field, (place, value) in given_settings(settings).items():
        reason = NOT_TAKEN[settings].get(field)
        if reason is not None and not (field in decided and str(value) == str(decided[field])):
            yield f"{place}: {reason}"


def _mistakes(settings: type[ServerSettings], decided: Mapping[str, Any], count: int) -> Iterator[str]:
    """Yields the mistakes in the settings of environment and file for `count` services of a kind."""
    try:
        loaded = load(settings, **decided)
    except SettingsError as error:
        yield str(error)
        return
    if loaded.metrics_port and count > 1:
        yield (
            f"{settings.variable('metrics_port')}={loaded.metrics_port}: {count} services of a local run cannot have "
            "one port; 0 takes any free one, none turns their metrics off"
        )


def _variables(settings: type[ServerSettings], decided: Mapping[str, object]) -> dict[str, str]:
    """Returns the variables of a service: its settings in this process's environment, and the values of the run."""
    prefix = settings.variable("")
    taken = {name.upper(): value for name, value in os.environ.items() if name.upper().startswith(prefix)}
    config = {CONFIG_VARIABLE: os.environ[CONFIG_VARIABLE]} if CONFIG_VARIABLE in os.environ else {}
    return config | taken | {settings.variable(field): _text(value) for field, value in decided.items()}


def _text(value: object) -> str:
    return repr(value) if isinstance(value, float) else str(value)
