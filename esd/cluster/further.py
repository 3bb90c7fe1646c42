"""Settings of services that a file gives by name, beside the settings that follow from its description of machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from esd.services.runtime.documents import suggestion
from esd.services.runtime.settings import PeerSettings, ServerSettings, explain

# Imported only for a file that has such settings: a client may be without the kernels that the dispatcher imports.
_SETTINGS = {
    "ps_server": ("esd.ps_server.service.settings", "ParameterServerSettings"),
    "dispatcher": ("esd.dispatcher.service.settings", "DispatcherSettings"),
    "worker": ("esd.worker.service.settings", "WorkerSettings"),
}

# Every deployment gives these by other keys of its own.
_BY_OTHER_KEYS = {
    *PeerSettings.model_fields,
    *("listen", "metrics_port", "page_port", "tls_clients", "tls_peer_name"),
    *("store", "store_password_file", "store_tls_ca", "checkpoint_dir", "shard", "shards"),
    *("name", "dispatcher", "link", "shape_link", "device", "code", "advertise_host"),
}
_OF_A_HOST = {"cache_rows", "lan", "site", "site_values"}


def further_settings(service: str) -> dict[str, str]:
    """Returns the meaning of every setting of a service that may be given by its name, by this name."""
    module, name = _SETTINGS[service]
    settings: type[ServerSettings] = getattr(import_module(module), name)
    return {each.field: each.meaning for each in explain(settings) if each.field not in _BY_OTHER_KEYS}


def _of_file(service: str) -> dict[str, str]:
    return {name: meaning for name, meaning in further_settings(service).items() if name not in _OF_A_HOST}


def _checked_by(service: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
        known = _of_file(service) if given else {}
        for name in given:
            if name not in known:
                raise ValueError(f"there is no setting {name!r} to give here{suggestion(name, known)}")
        return given

    return check


def _described_by(service: str) -> Callable[[dict[str, Any]], None]:
    def describe(schema: dict[str, Any]) -> None:
        known = _of_file(service)
        schema["additionalProperties"] = False
        schema["properties"] = {name: {"description": meaning} for name, meaning in known.items()}

    return describe


_Values = Mapping[str, bool | int | float | str]  # by name; the service itself checks them

OfParameterServer = Annotated[
    _Values, AfterValidator(_checked_by("ps_server")), Field(json_schema_extra=_described_by("ps_server"))
]
OfDispatcher = Annotated[
    _Values, AfterValidator(_checked_by("dispatcher")), Field(json_schema_extra=_described_by("dispatcher"))
]
OfWorker = Annotated[_Values, AfterValidator(_checked_by("worker")), Field(json_schema_extra=_described_by("worker"))]
