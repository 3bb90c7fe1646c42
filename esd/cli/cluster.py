"""`esd cluster example|up|status|down|kit|certs`: files of a cluster; starts, shows and removes its containers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from esd.cli.console import Json, messages, waiting_for
from esd.cli.report import print_json
from esd.cli.tables import print_table
from esd.cluster.code import Files, read_code
from esd.cluster.config import CLIENT, Cluster, read_cluster
from esd.cluster.containers import containers_of
from esd.cluster.kit import write_kit
from esd.services.domain.errors import FailedPrecondition, Unavailable
from esd.services.runtime.extras import is_missing
from esd.services.runtime.settings import join_address

if TYPE_CHECKING:
    from esd.cluster.engines import Engines, Found

START_SECONDS = 120.0  # for all services to get ready, and from one progress of one that loads its rows to the next
_POLL_SECONDS = 0.5

# How the `esd` command shows itself to a cluster, by the files of its folder.
CREDENTIALS = {
    "ESD_CLIENT_TLS_CA": "ca.crt",
    "ESD_CLIENT_TLS_CERTIFICATE": "tls.crt",
    "ESD_CLIENT_TLS_KEY": "tls.key",
    "ESD_CLIENT_TOKEN_FILE": "token",
}

File = Annotated[Path, typer.Option("--file", help="The cluster file.")]
FILE = Path("cluster.toml")

app = typer.Typer(help="Runs ESD on several machines with container engines.", no_args_is_help=True)


@app.command()
def example() -> None:
    """Prints a cluster file to begin with: esd cluster example > cluster.toml."""
    print((files("esd.cluster") / "example.toml").read_text(), end="")


@app.command()
def up(file: File = FILE) -> None:
    """Starts the services that do not run yet, and waits until all are healthy."""
    cluster = read_cluster(file)
    secrets, code = _files_of(cluster)
    with _engines(cluster) as engines:
        engines.start(containers_of(cluster, secrets, code))
        _await_health(engines)
    for host in cluster.hosts:
        if host.engine is None:
            messages.print(f"{host.name} has no engine: `esd cluster kit {host.name}` makes the files of its services")
    head = cluster.head_host.address
    if cluster.tls:
        messages.print("Show who you are:", highlight=False)
        for variable, name in CREDENTIALS.items():
            path = (cluster.certificates / CLIENT / name).resolve()
            messages.print(f"export {variable}={path}", highlight=False, soft_wrap=True)
    messages.print(
        f"Train with: esd train --dispatcher {join_address(head, cluster.ports.dispatcher)} --parameter-servers "
        f"{join_address(head, cluster.ports.ps_server)} --workers {len(cluster.workers)} ...",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def status(file: File = FILE, as_json: Json = False) -> None:
    """Shows every container of the cluster."""
    with _engines(read_cluster(file)) as engines:
        found = engines.found()
    if as_json:
        print_json([{"host": f.host, "service": f.service, "state": f.state, "health": f.health} for f in found])
        return
    table = Table("host", "service", "state", "health", show_edge=False, pad_edge=False)
    for each in found:
        table.add_row(each.host, each.service, each.state, each.health)
    print_table(table)


@app.command()
def down(
    file: File = FILE,
    volumes: Annotated[bool, typer.Option("--volumes", help="Remove the rows in Redis too.")] = False,
) -> None:
    """Stops and removes every container of the cluster."""
    with _engines(read_cluster(file)) as engines:
        engines.remove(volumes=volumes)


@app.command()
def kit(
    host: Annotated[str, typer.Argument(help="The name of the machine in the cluster file.")],
    file: File = FILE,
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write; kit-HOST without it.")] = None,
    wheel: Annotated[
        Path | None, typer.Option("--wheel", exists=True, dir_okay=False, help="ESD, if the machine's pip finds none.")
    ] = None,
) -> None:
    """Writes a folder for a machine without an engine: units of systemd, settings, certificate, install, check."""
    cluster = read_cluster(file)
    folder = Path(f"kit-{host}") if out is None else out
    secrets, code = _files_of(cluster)
    write_kit(cluster, host, folder, secrets=secrets, code=code, wheel=wheel)
    messages.print(
        f"Copy {folder} to {host}, and there as root: ./install. The folder has a private key: remove it after that.",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def certs(
    directory: Annotated[Path, typer.Argument(help="The folder of all folders, made if it is missing.")],
    names: Annotated[list[str], typer.Argument(help="NAME[,OTHER-NAME...] of one certificate each.")],
) -> None:
    """Makes an authority, and for each NAME a folder with certificate, key and token of its service.

    For services that neither `up` nor `kit` provides: esd cluster certs certs ps_server dispatcher worker client.
    """
    with _named_extra():
        from esd.cluster.certificates import make_certificates  # noqa: PLC0415 - an optional dependency
    make_certificates(directory, names)


def _files_of(cluster: Cluster) -> tuple[dict[str, Files] | None, Files | None]:
    """Returns the files of each service, none in plaintext, and the files of models of one's own, if there are any."""
    code = None if cluster.code is None else read_code(cluster.code)
    if not cluster.tls:
        return None, code
    with _named_extra():
        from esd.cluster.secrets import provide_secrets  # noqa: PLC0415 - an optional dependency
    return provide_secrets(cluster), code


@contextmanager
def _named_extra() -> Iterator[None]:
    """Names the extra that brings a package whose import fails in the block."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise FailedPrecondition(is_missing("esd cluster", f"the package {error.name}", "cluster")) from None


@contextmanager
def _engines(cluster: Cluster) -> Iterator[Engines]:
    with _named_extra():
        if any(str(host.engine).startswith("ssh://") for host in cluster.engine_hosts):
            import_module("paramiko")  # the docker package imports it where it is there, and else names no remedy
        from esd.cluster.engines import connected  # noqa: PLC0415 - an optional dependency
    with ExitStack() as stack:
        with waiting_for("the container engines of the hosts"):
            connection = connected(cluster, lambda step: messages.print(str(step), highlight=False))
            engines = stack.enter_context(connection)
        yield engines


def _await_health(engines: Engines) -> None:
    """Waits until all containers are healthy, as long as there is progress within START_SECONDS.

    Raises:
        Unavailable: there is none.
    """
    deadline, before = time.monotonic() + START_SECONDS, set[tuple[str, str, str]]()
    while waiting := [each for each in engines.found() if each.health != "healthy"]:
        progress = {(each.host, each.service, each.said) for each in waiting if each.said}
        if progress - before:
            deadline, before = time.monotonic() + START_SECONDS, before | progress
        if time.monotonic() > deadline:
            raise Unavailable(f"not healthy after {START_SECONDS:.0f} s: {_list(waiting)}; docker logs says why")
        time.sleep(_POLL_SECONDS)


def _list(found: list[Found]) -> str:
    return ", ".join(
        f"{each.service} on {each.host} ({', '.join(filter(None, (each.state, each.health, each.said)))})"
        for each in found
    )
