"""`esd serve`: becomes one of the services, as the containers do.

The flags are the fields of the service's settings class. A flag sets the environment variable of its name for the
process that this one becomes, so there is one list of settings, one place that checks them and one order of precedence.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape

from esd.cluster.replica import interface_of, local_address, replica_link, replica_number
from esd.dispatcher.service.settings import DispatcherSettings
from esd.lanes.settings import LanesSettings
from esd.ps_server.service.settings import ParameterServerSettings
from esd.run.devices import AUTO, CUDA, worker_devices
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.settings import CONFIG_VARIABLE, Explanation, Settings, explain, split_address
from esd.serving.settings import ModelSettings
from esd.worker.service.settings import WorkerSettings

app = typer.Typer(help="Runs one service in the foreground.", no_args_is_help=True)

# What `--links` finds out, so that nobody else may say it.
_SET_BY_LINKS = ("name", "link", "advertise_host")

CONFIG = "config"
Config = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Settings file (TOML).", show_default=CONFIG_VARIABLE)
]
Folder = Annotated[
    str | None,
    typer.Argument(
        metavar="FOLDER",
        help="Folder of the model. A newer folder at the same path takes its place, without a lost request.",
        show_default=ModelSettings.variable("folder"),
    ),
]
Links = Annotated[
    str | None,
    typer.Option(
        "--links",
        metavar="LIST",
        help="For one of several replicas of a container: its link is at its place in this list of bits per second"
        " (500m,500m,50m,50m, or one for all). Sets name, link and advertised host.",
    ),
]


def _command(module: str, settings: type[Settings], what: str, **others: Any) -> Callable[..., NoReturn]:
    """Makes a command with a flag for every setting of a service, and with other options by name."""
    options = {each.field: _option(each) for each in explain(settings)} | {CONFIG: Config} | others

    def command(**values: Any) -> NoReturn:
        _become(module, settings, {name: value for name, value in values.items() if value is not None})

    example = settings.variable("listen")
    command.__doc__ = (
        f"Runs {what} in the foreground.\n\nA flag wins over the variable of its name (--listen over {example}), and"
        " that over the settings file."
    )
    command.__annotations__ = options
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options.items()
        ]
    )
    return command


def _option(setting: Explanation) -> Any:
    """Returns the type of a command's parameter that is the flag of a setting."""
    required = setting.default is None
    shown = False if required else setting.default or "none"
    meaning = escape(f"{setting.meaning}; required" if required else setting.meaning)
    if setting.switch:
        names = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return Annotated[bool | None, typer.Option(names, help=meaning, show_default=shown)]
    return Annotated[str | None, typer.Option(setting.flag, metavar="VALUE", help=meaning, show_default=shown)]


def _become(module: str, settings: type[Settings], given: dict[str, Any]) -> NoReturn:
    """Replaces this process by a service, to which the flags that were given are environment variables."""
    links = given.pop("links", None)
    if CONFIG in given:
        os.environ[CONFIG_VARIABLE] = given.pop(CONFIG)
    flags = {settings.variable(field): str(value) for field, value in given.items()}
    for name in [name for name in os.environ if name.upper() in flags]:
        del os.environ[name]  # however it is written: the services do not distinguish
    os.environ.update(flags)
    if settings is WorkerSettings:
        os.environ.update(_place_of_worker(links, given))
    os.execv(sys.executable, [sys.executable, "-m", module])  # noqa: S606 - replaces this process, no shell


def _place_of_worker(links: str | None, flags: Mapping[str, Any]) -> dict[str, str]:
    """Returns the variables of a worker's environment for its place in the network, and in `links` if there are any.

    Raises:
        InvalidArgument: `links` and the flags say the same thing twice, `links` does not name this replica, or the
            GPU that is asked for is not here.
    """
    said_twice = [WorkerSettings.flag(field) for field in _SET_BY_LINKS if field in flags]
    if links is not None and said_twice:
        raise InvalidArgument(f"--links sets what {' and '.join(said_twice)} would set: leave one of the two out")
    dispatcher = os.environ.get(WorkerSettings.variable("dispatcher"), "")
    try:
        split_address(dispatcher)
    except ValueError:
        return {}  # the worker says so itself, with all that is wrong besides
    address = local_address(dispatcher)
    # A machine may be in several networks; for the all-reduce torch would take the one that its host name stands for.
    interface = interface_of(address)
    place = {"GLOO_SOCKET_IFNAME": interface}
    if links is not None:
        number = replica_number(address)
        device = WorkerSettings.variable("device")
        if os.environ.get(device) in (AUTO, CUDA):
            place[device] = worker_devices(os.environ[device], number, device)[-1]  # the replicas' GPUs in turn
        place |= {
            WorkerSettings.variable("name"): f"worker-{number}",
            WorkerSettings.variable("link"): repr(replica_link(links, address)),
            WorkerSettings.variable("advertise_host"): address,
        }
    return place


app.command("ps")(_command("esd.ps_server", ParameterServerSettings, "a parameter server"))
app.command("dispatcher")(_command("esd.dispatcher", DispatcherSettings, "the dispatcher"))
app.command("model")(_command("esd.serving", ModelSettings, "a service that scores by a model", folder=Folder))
app.command("worker")(_command("esd.worker", WorkerSettings, "a worker", links=Links))
app.command("lanes")(_command("esd.lanes", LanesSettings, "an end of lanes, for links that lose packets"))
