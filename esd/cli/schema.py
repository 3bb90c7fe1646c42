"""`esd schema`: the JSON Schemas of the files that people write, from which editors complete keys and values."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import BaseModel, ConfigDict, Field, create_model

from esd.cli import plan, simulate, train
from esd.cli.job_file import taken_by
from esd.cli.later import load
from esd.cluster.config import Cluster, Host
from esd.data.schema import Id, IdList, Schema, TableOptions
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.runtime.json_schema import json_schema
from esd.services.runtime.settings import ClientSettings
from esd.worker.service.settings import WorkerSettings

_COMMANDS = {"train": train.command, "simulate": simulate.command, "plan": plan.command}
_SERVICES = (ParameterServerSettings, DispatcherSettings, WorkerSettings, ClientSettings)
_Scalar = str | int | float


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
            return json_schema(_options_of(file.value), ())


def _of_services() -> dict[str, Any]:
    """Returns the JSON Schema of the settings' file. No key is required in it: environment and flags have others."""
    sections: dict[str, Any] = {each.section(): (each | None, None) for each in _SERVICES}
    described = json_schema(create_model("Settings", __config__=ConfigDict(extra="forbid"), **sections), ())
    for each in described["$defs"].values():
        each.pop("required", None)
    return described


def _options_of(name: str) -> type[BaseModel]:
    """Returns the options of a command that its `--config` takes, as a class of pydantic's."""
    annotations = _COMMANDS[name].__annotations__
    fields: dict[str, Any] = {}
    for key, parameter in taken_by(load(name).params).items():
        kind, option = get_args(annotations[parameter.name])
        limits = {"ge": option.min, "le": option.max} if option.min is not None or option.max is not None else {}
        described: Any = Annotated[_in_file(kind), Field(description=option.help, **limits)]
        fields[f"option_{parameter.name}"] = (described, Field(parameter.default, alias=key))
    return create_model(f"esd {name}", __config__=ConfigDict(extra="forbid"), **fields)


def _in_file(kind: Any) -> Any:
    """Returns the kind of a value in the file: a text may be written as a number or a list, too."""
    (present,) = [each for each in get_args(kind) or (kind,) if each is not type(None)]
    return _Scalar | list[_Scalar] if present is str else str if present is Path else present
