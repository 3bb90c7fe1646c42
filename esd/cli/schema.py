"""`esd schema`: the JSON Schemas of the files that people write, from which editors complete keys and values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import ConfigDict, create_model

from esd.cli.job_model import job_model
from esd.cli.later import load
from esd.cluster.config import Cluster, Host
from esd.data.schema import Id, IdList, Schema, TableOptions
from esd.dispatcher.service.settings import DispatcherSettings
from esd.lanes.settings import LanesSettings
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.runtime.json_schema import json_schema
from esd.services.runtime.settings import ClientSettings, Settings
from esd.serving.settings import ModelSettings
from esd.worker.service.settings import WorkerSettings

# All settings, each a section of the file, by the names that docs/reference/settings.md has for their readers.
SETTINGS: Mapping[str, type[Settings]] = {
    "ps_server": ParameterServerSettings,
    "dispatcher": DispatcherSettings,
    "worker": WorkerSettings,
    "a served model": ModelSettings,
    "an end of lanes": LanesSettings,
    "the `esd` command": ClientSettings,
}


class File(StrEnum):
    """The kinds of files."""

    DATA = "data"
    TRAIN = "train"
    SIMULATE = "simulate"
    PLAN = "plan"
    SERVE = "serve"
    CLUSTER = "cluster"


def command(
    file: Annotated[
        File,
        typer.Argument(
            help="data: the file of --schema; train, simulate, plan: of their --config; serve: of the services' "
            "settings; cluster: of esd cluster --file."
        ),
    ],
) -> None:
    """Prints the JSON Schema of a kind of file, from which editors complete and check it.

    `esd schema data > esd-data.json`, and `#:schema esd-data.json` as the first line of the TOML file.
    """
    print(json.dumps(schema_of(file), indent=2))


def schema_of(file: File) -> dict[str, Any]:
    """Returns the JSON Schema of a kind of file."""
    match file:
        case File.DATA:
            return json_schema(Schema, (Schema, Id, IdList, TableOptions))
        case File.CLUSTER:
            return json_schema(Cluster, (Cluster, Host))
        case File.SERVE:
            return _of_services()
        case _:
            return json_schema(job_model(load(file.value)), ())


def _of_services() -> dict[str, Any]:
    """Returns the JSON Schema of the settings' file. No key is required in it: environment and flags have others."""
    sections: dict[str, Any] = {each.section(): (each | None, None) for each in SETTINGS.values()}
    described = json_schema(create_model("Settings", __config__=ConfigDict(extra="forbid"), **sections), ())
    for each in described["$defs"].values():
        each.pop("required", None)
    return described
