"""Settings of services that a file gives by name, beside the settings that follow from its description of machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.runtime.documents import suggestion
from esd.services.runtime.settings import PeerSettings, ServerSettings, explain
from esd.worker.service.settings import WorkerSettings

SETTINGS: dict[str, type[ServerSettings]] = {
    "ps_server": ParameterServerSettings,
    "dispatcher": DispatcherSettings,
    "worker": WorkerSettings,
}

# Every deployment gives these by other keys of its own.
BY_OTHER_KEYS = {
    *PeerSettings.model_fields,
    *("listen", "metrics_port", "page_port", "tls_clients", "tls_peer_name"),
    *("store", "store_password_file", "store_tls_ca", "checkpoint_dir", "shard", "shards"),
    *("name", "dispatcher", "link", "shape_link", "device", "code", "advertise_host"),
}
_OF_A_HOST = {"cache_rows", "lan", "site", "site_values"}


def further_settings(service: str) -> dict[str, str]:
    """Returns the meaning of every setting of a service that may be given by its name, by this name."""
    return {each.field: each.meaning for each in explain(SETTINGS[service]) if each.field not in BY_OTHER_KEYS}


def _known_to(service: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    known = further_settings(service).keys() - _OF_A_HOST

    def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in given:
            if name not in known:
                raise ValueError(f"there is no setting {name!r} to give here{suggestion(name, known)}")
        return given

    return check


def _described(service: str) -> dict[str, Any]:
    known = {name: text for name, text in further_settings(service).items() if name not in _OF_A_HOST}
    return {"additionalProperties": False, "properties": {name: {"description": text} for name, text in known.items()}}


_Values = Mapping[str, bool | int | float | str]  # by name; the service itself checks them

OfParameterServer = Annotated[
    _Values, AfterValidator(_known_to("ps_server")), Field(json_schema_extra=_described("ps_server"))
]
OfDispatcher = Annotated[
    _Values, AfterValidator(_known_to("dispatcher")), Field(json_schema_extra=_described("dispatcher"))
]
OfWorker = Annotated[_Values, AfterValidator(_known_to("worker")), Field(json_schema_extra=_described("worker"))]
